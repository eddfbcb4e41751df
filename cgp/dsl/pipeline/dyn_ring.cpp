// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/dyn_ring.h"

namespace cgp::dsl {
namespace {

constexpr int kAlign = 1024;  // of a 128-byte swizzle's pattern
int padded(int bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

std::vector<DynTile> list(const std::vector<DynRing::Tiles>& tiles) {
  std::vector<DynTile> out;
  for (const auto& t : tiles) out.insert(out.end(), std::size_t(t.count), t.from.tile());
  return out;
}
int offset_of(const std::vector<DynTile>& tiles, int i) {
  int at = 0;
  for (int j = 0; j < i; ++j) at += padded(tiles[std::size_t(j)].bytes());
  return at;
}
int stage_bytes(const std::vector<DynTile>& tiles) { return offset_of(tiles, int(tiles.size())); }

record::RingCore make_core(Kernel& k, Stages stages, const Role<Warpgroup>& from, const Role<Warpgroup>& to,
                           const std::vector<DynRing::Tiles>& tiles) {
  if (from.count() != 1)
    throw BuildError(
        "a ring has one producer", stages.at,
        text::cat("the producing role has ", from.count(), " members: each would fill every stage"));
  if (tiles.empty()) throw BuildError("a ring carries at least one tile per stage", stages.at);
  std::vector<Axis> axes;
  for (const auto& t : tiles)
    if (t.from.map().peers > 1) axes.push_back(t.from.map().axis);
  const auto all = list(tiles);
  int bytes = 0;
  for (const auto& t : all) bytes += t.bytes();
  return record::RingCore(
      k, stages, bytes, stage_bytes(all), kAlign,
      {to.threads() / 32, false, false, from.first_warp(), to.first_warp(), to.threads() / 32}, axes);
}

}  // namespace

DynSmemTile DynFilled::tile(int i) const {
  return DynSmemTile(tiles_.at(std::size_t(i)), data_, offset_of(tiles_, i));
}
DynSmemTile DynFilled::share(int i) const {
  const DynTile& t = tiles_.front();
  return DynSmemTile(t, data_ + std::uint32_t(i * members_ * padded(t.bytes())));
}
std::vector<record::StageToken> DynFilled::tokens() && {
  std::vector<record::StageToken> out;
  if (token_) out.push_back(std::move(*token_));
  return out;
}

DynRing::DynRing(Kernel& k, Stages stages, const Role<Warpgroup>& from, const Role<Warpgroup>& to,
                 const std::vector<Tiles>& tiles)
    : k_(k), tiles_(list(tiles)), members_(to.count()), core_(make_core(k, stages, from, to, tiles)) {}

void DynRing::load(int i, const DynTmaAt<DynTmaIn>& from, const record::RingCore::Stage& s, Here at) {
  if (from.tile != tiles_[std::size_t(i)])
    throw BuildError("a source's tile differs from the ring's", at, text::cat("tile ", i, " of the stage"),
                     "fill the stage from the maps that the ring was made of, in their order");
  record::tma_load(k_, from.place, {s.data, offset_of(tiles_, i)}, s.full, at);
}

DynFilled DynRing::take(Warpgroup& wg, Here at) {
  wg.converged("taking a stage", at);
  const auto data = core_.begin_take(at);
  return DynFilled(tiles_, data, members_, core_.end_take(at));
}
DynFilled DynRing::peek(Warpgroup& wg, Here at) {
  wg.converged("looking at a stage", at);
  return DynFilled(tiles_, core_.begin_take(at), members_, std::nullopt);
}
void DynRing::pass(Warpgroup& wg, const Val<u32>& n, Here at) {
  wg.converged("passing stages", at);
  k_.loop(
      n,
      [&](Val<u32>) {
        (void)core_.begin_take(at);
        core_.end_take(at).release(at);
      },
      at);
}

int DynRing::share_count(const DynTile& tile) const {
  return stage_bytes(tiles_) / padded(tile.bytes()) / members_;
}
void DynRing::fill_shares(Thread&, const std::vector<DynTmaAt<DynTmaIn>>& from, Here at) {
  int bytes = 0;
  for (const auto& f : from) bytes += f.tile.bytes();
  if (from.empty() || int(from.size()) % members_ || int(from.size()) / members_ > share_count(from[0].tile))
    throw BuildError("a stage is shared out among the members of its role", at,
                     text::cat(from.size(), " tiles, ", members_, " members, room for ",
                               from.empty() ? 0 : share_count(from[0].tile), " each"));
  const auto stage = core_.begin_fill(at, bytes);
  for (std::size_t i = 0; i < from.size(); ++i)
    record::tma_load(k_, from[i].place, {stage.data, int(i) * padded(from[0].tile.bytes())}, stage.full, at);
  core_.end_fill(at);
}
DynFilled DynRing::take_shares(Warpgroup& wg, const DynTile& tile, Here at) {
  wg.converged("taking a stage", at);
  const auto data = core_.begin_take(at);
  const auto own = members_ == 1 ? data : data + record::times(wg.index, padded(tile.bytes()));
  return DynFilled({tile}, own, members_, core_.end_take(at));
}

DynSmemTile DynRing::reuse(Warpgroup& wg, const DynTile& as, int stage, int tile, int first_row,
                           int rows_each) const {
  const int span = tiles_.at(std::size_t(tile)).layout.span();
  const auto base =
      k_.smem_addr(core_.data() + stage * stage_bytes(tiles_) + offset_of(tiles_, tile) + first_row * span);
  return DynSmemTile(as, members_ == 1 ? base : base + record::times(wg.index, rows_each * span));
}

}  // namespace cgp::dsl
