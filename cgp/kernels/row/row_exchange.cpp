// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/row/row_exchange.h"

namespace cgp::kernels::row {

using namespace dsl;

RowExchange::RowExchange(Kernel& k, const RowConfig& c, const Fold* fold) : k_(k), c_(c), fold_(fold) {
  if (!fold) return;
  size_ = fold->size();
  warps_ = std::max(1, c.threads / 32);
  const int sets = c.visits_many() ? 2 : 1;
  if (warps_ > 1) slots_ = k.smem(sets * warps_ * size_ * 4, 16);
  if (c.cluster == 1) return;
  const int peer_sets = c.visits_many() ? int(this->peer_sets()) : 1;
  peer_slots_ = k.smem(peer_sets * c.cluster * size_ * 4, 16);
  barriers_.emplace(k, peer_sets);
}

Stat RowExchange::operator()(const Stat& own, const Visit& visit,
                             const std::function<void()>& all_arrived) const {
  if (c_.cluster > 1) {
    send(own, visit, all_arrived);
    return receive(visit);
  }
  auto w = k_.warp();
  const auto of_warp = fold_->lanes(w, own, std::min(c_.threads, 32));
  if (warps_ > 1) return in_block(w, of_warp, visit, all_arrived);
  if (c_.stages) k_.sync();
  all_arrived();
  return of_warp;
}

Ptr<shared, f32> RowExchange::set(int offset, int size, std::uint32_t sets, const Visit& visit) const {
  const Ptr<shared, f32> first(k_.smem_addr(offset));
  return visit ? first.at((*visit & (sets - 1)) * std::uint32_t(size)) : first;
}

Stat RowExchange::in_block(Warp& w, const Stat& of_warp, const Visit& visit,
                           const std::function<void()>& all_arrived) const {
  if (warps_ == 1) {
    k_.sync();
    all_arrived();
    return of_warp;
  }
  const auto slots = set(slots_, warps_ * size_, 2, visit);
  const auto lane = w.lane();
  k_.if_(lane == 0, [&] {
    const auto own = slots.at(k_.warp_index() * std::uint32_t(size_));
    for (int i = 0; i < size_; ++i) own.st(i, of_warp[std::size_t(i)]);
  });
  k_.sync();
  all_arrived();
  int width = 2;
  while (width < warps_) width *= 2;
  const auto nothing = fold_->nothing();
  const auto slot = lane & std::uint32_t(width - 1);
  Stat part;
  for (int i = 0; i < size_; ++i)
    part.push_back(slots.ld_if(slot < std::uint32_t(warps_), slot * std::uint32_t(size_) + std::uint32_t(i),
                               Val<f32>(nothing[std::size_t(i)]))[0]);
  return fold_->warps(w, part, width);
}

// Every block sends its statistics to all, itself included; the barrier counts the bytes that arrive. A set
// of slots is written again two rows later: by then every block has sent the row between, and so has read
// this one. With overlap_exchange a block sends the next row before it reads this one, and it takes four.
void RowExchange::send(const Stat& own, const Visit& visit, const std::function<void()>& all_arrived) const {
  auto w = k_.warp();
  const auto of_block = in_block(w, fold_->lanes(w, own, std::min(c_.threads, 32)), visit, all_arrived);
  const auto slots = set(peer_slots_, c_.cluster * size_, peer_sets(), visit);
  const auto barrier = barriers_->at(visit);
  auto cta = k_.cta();
  cta.one_thread([&](Thread& t) { barrier.expect(t, Val<u32>(c_.cluster * size_ * 4)); });
  k_.if_(k_.warp_index() == 0, [&] {
    const auto lane = w.lane();
    k_.if_(lane < std::uint32_t(c_.cluster), [&] {
      const auto peer = barrier.of_block(lane);
      const auto to = mapa(slots.at(k_.cluster_ctarank() * std::uint32_t(size_)), lane);
      for (int i = 0; i < size_; ++i) st_async(to.at(i), of_block[std::size_t(i)], peer);
    });
  });
}

Stat RowExchange::receive(const Visit& visit) const {
  const auto slots = set(peer_slots_, c_.cluster * size_, peer_sets(), visit);
  barriers_->wait(visit);
  std::vector<Stat> partials;
  for (int r = 0; r < c_.cluster; ++r) {
    Stat s;
    for (int i = 0; i < size_; ++i) s.push_back(slots.ld(r * size_ + i));
    partials.push_back(std::move(s));
  }
  return fold_->merge(partials);
}

}  // namespace cgp::kernels::row
