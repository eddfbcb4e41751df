// SPDX-License-Identifier: Apache-2.0
// Collectives through staging memory that all ranks can read.
//   who      64 blocks of 512 threads at most; block b of every rank handles the same elements
//   memory   own part to the own staging memory; then each rank reads what it needs from the others, 16 bytes an access
//   sync     block b tells block b of every rank that its part is there (st.release.sys) and waits for theirs
//            (ld.acquire.sys). Signals hold the number of the call, so nothing is ever reset. Two slots of staging
//            memory take turns: whoever has the signals of call e + 1 knows that all have finished call e
//   needs    sm_75; sums of bf16 sm_80
#include "cgp/kernels/collective/collective.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/collective/exchange.h"
#include "cgp/kernels/row/elements.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using text::cat;

constexpr std::uint32_t kThreads = 512;
constexpr std::uint64_t kTwoShotBytes = 512 << 10;

enum class Op : std::uint8_t {
  all_reduce,
  all_reduce_two_shot,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all
};
constexpr std::string_view kOps[] = {"all_reduce",     "all_reduce_two_shot", "all_gather",
                                     "reduce_scatter", "broadcast",           "all_to_all"};
bool sums(Op o) { return o == Op::all_reduce || o == Op::all_reduce_two_shot || o == Op::reduce_scatter; }
bool gives_parts(Op o) {
  return o == Op::reduce_scatter || o == Op::all_to_all;
}  // x has a part for each rank

struct CollectiveConfig {
  Op op{};
  DType type{};  ///< without a sum f16, for any two bytes
  int ranks = 1;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("op", kOps, c.op);
    v.type("type", "", c.type);
    v.number("ranks", "ranks", c.ranks);
  }
};

template <template <class> class V>
struct CollectiveArgs {
  V<Out<b8>> x;  ///< read; may be out
  V<Out<b8>> out;
  V<In<u64>> table;           ///< staging memory of each rank, then signals of each
  V<u64> slot, pitch;         ///< bytes: of a slot; from one part in staging memory to the next
  V<u64> x_pitch, out_pitch;  ///< bytes from one rank's part of x or out to the next
  V<u64> count;               ///< elements of a part
  V<u32> rank, root;
  V<u32> x_aligned, out_aligned;  ///< 1: every part begins at a multiple of 16 bytes
};

// A part in units of 16 bytes. Unit u belongs to the same thread of all ranks, however their memory is aligned.
class Units {
 public:
  Units(Kernel& k, const CollectiveConfig& c, const Val<u64>& count)
      : k_(k),
        per_(16 / cgp::bytes(c.type)),
        ranks_(c.ranks),
        wide_{c.type, per_},
        one_{c.type, 1},
        count_(count),
        whole_(count / std::uint64_t(per_)),
        always_(k.tid() < kThreads) {}

  const row::Format& format() const { return wide_; }
  // body(u, turn): the ranks take turns.
  template <class Body>
  void each(Body&& body) const {
    const auto thread = to<u64>(k_.ctaid_x()) * std::uint64_t(kThreads) + to<u64>(k_.tid());
    const auto threads = to<u64>(k_.nctaid_x()) * std::uint64_t(kThreads);
    const auto units = (count_ + std::uint64_t(per_ - 1)) / std::uint64_t(per_);
    (void)k_.loop(range(thread, units, threads), Val<u32>(0), [&](const Val<u64>& u, const Val<u32>& turn) {
      body(u, turn);
      return select(turn == std::uint32_t(ranks_ - 1), Val<u32>(0), turn + 1u);
    });
  }
  // Staging memory, which has room for whole units.
  row::Access staged(const Ptr<global, b8>& p, const Val<u64>& u) const {
    return row::load(wide_, p, u, always_);
  }
  void stage(const Ptr<global, b8>& p, const Val<u64>& u, const row::Access& a) const {
    row::store(wide_, p, u, always_, a);
  }
  // The caller's memory.
  row::Access load(const Ptr<global, b8>& p, const Val<u32>& aligned, const Val<u64>& u) const {
    return k_.if_(
        (aligned != 0u) & (u < whole_), [&] { return row::load(wide_, p, u, always_); },
        [&] {
          row::Access alone;
          for (int e = 0; e < per_; ++e) {
            const auto i = u * std::uint64_t(per_) + std::uint64_t(e);
            alone.push_back(row::load(one_, p, i, i < count_)[0]);
          }
          if (per_ == 4) return alone;
          row::Access words;
          for (std::size_t w = 0; w < 4; ++w)
            words.push_back(bits<b32>(bits<u32>(alone[2 * w]) | bits<u32>(alone[2 * w + 1]) << 16u));
          return words;
        });
  }
  void store(const Ptr<global, b8>& p, const Val<u32>& aligned, const Val<u64>& u,
             const row::Access& a) const {
    const auto wide = (aligned != 0u) & (u < whole_);
    row::store(wide_, p, u, wide, a);
    k_.if_(!wide, [&] {
      for (int e = 0; e < per_; ++e) {
        const auto i = u * std::uint64_t(per_) + std::uint64_t(e);
        const auto& word = a[std::size_t(e * 4 / per_)];
        const bool high = per_ == 8 && e % 2;
        row::store(one_, p, i, i < count_, {high ? bits<b32>(bits<u32>(word) >> 16u) : word});
      }
    });
  }

 private:
  Kernel& k_;
  int per_, ranks_;
  row::Format wide_, one_;
  Val<u64> count_, whole_;
  Val<pred> always_;
};

void collective_kernel(Kernel& k, CollectiveConfig c, CollectiveArgs<DeviceArg> p) {
  k.block(int(kThreads));
  const Exchange exchange(k, c.ranks, p.table, p.rank);
  const Units units(k, c, p.count);
  const auto own = exchange.staging(p.rank, p.slot);
  const int parts = gives_parts(c.op) ? c.ranks : 1;
  const auto give = [&] {
    units.each([&](const Val<u64>& u, const Val<u32>&) {
      std::vector<row::Access> got;
      for (int q = 0; q < parts; ++q)
        got.push_back(units.load(p.x.at(p.x_pitch * std::uint64_t(q)), p.x_aligned, u));
      for (int q = 0; q < parts; ++q) units.stage(own.at(p.pitch * std::uint64_t(q)), u, got[std::size_t(q)]);
    });
  };
  if (c.op == Op::broadcast)
    k.if_(p.rank == p.root, give);
  else
    give();
  exchange.signal_and_wait(0);

  std::vector<Ptr<global, b8>> from;  // by rank: what it gives to this one
  for (int r = 0; r < c.ranks; ++r) {
    const auto at = exchange.staging(Val<u32>(std::uint32_t(r)), p.slot);
    from.push_back(gives_parts(c.op) ? at.at(to<u64>(p.rank) * p.pitch) : at);
  }
  const auto of_all = [&](const Val<u64>& u) {
    std::vector<row::Access> got;
    for (const auto& at : from) got.push_back(units.staged(at, u));
    return got;
  };
  const auto sum = [&](const Val<u64>& u) {
    const auto got = of_all(u);
    row::Floats total = row::floats(units.format(), got[0]);
    for (std::size_t r = 1; r < got.size(); ++r) {
      const auto more = row::floats(units.format(), got[r]);
      row::Floats next;
      for (std::size_t e = 0; e < total.size(); ++e) next.push_back(total[e] + more[e]);
      total.swap(next);
    }
    return row::pack(units.format(), total);
  };
  const auto put = [&](const Val<u64>& u, const row::Access& a) { units.store(p.out, p.out_aligned, u, a); };
  switch (c.op) {
    case Op::all_reduce:
    case Op::reduce_scatter:
      units.each([&](const Val<u64>& u, const Val<u32>&) { put(u, sum(u)); });
      break;
    case Op::all_reduce_two_shot:
      // Units belong to the ranks in turn; sums lie behind what was given.
      units.each([&](const Val<u64>& u, const Val<u32>& turn) {
        k.if_(turn == p.rank, [&] { units.stage(own.at(p.pitch), u, sum(u)); });
      });
      exchange.signal_and_wait(1);
      units.each([&](const Val<u64>& u, const Val<u32>& turn) {
        put(u, units.staged(exchange.staging(turn, p.slot).at(p.pitch), u));
      });
      break;
    case Op::broadcast:
      units.each([&](const Val<u64>& u, const Val<u32>&) {
        put(u, units.staged(exchange.staging(p.root, p.slot), u));
      });
      break;
    case Op::all_gather:
    case Op::all_to_all:
      units.each([&](const Val<u64>& u, const Val<u32>&) {
        const auto got = of_all(u);
        for (int r = 0; r < c.ranks; ++r)
          units.store(p.out.at(p.out_pitch * std::uint64_t(r)), p.out_aligned, u, got[std::size_t(r)]);
      });
      break;
  }
  exchange.end();
}

Variant make(const CollectiveConfig& c) {
  return config_variant("collective", c, sums(c.op) && c.type == DType::bf16 ? 80 : 75, collective_kernel);
}

// ---------------------------------------------------------------- the call
struct Call {
  Op op{};
  std::string_view name;
  View x, out;
  std::uint64_t count = 0;  ///< elements of a part
  int root = 0;
};

[[noreturn]] void fail(const Call& c, std::string rule, std::string why) {
  throw ArgumentError({cat(c.name, ": ", rule), {}, std::move(why), {}});
}

void check(const runtime::Stream& s, const Communicator& all, int rank, const Call& c) {
  if (rank < 0 || rank >= all.size())
    fail(c, "a rank is one of the communicator's", cat("rank ", rank, " of ", all.size()));
  if (c.root < 0 || c.root >= all.size())
    fail(c, "root is a rank of the communicator", cat("root ", c.root, " of ", all.size()));
  if (!(s.device() == all.device(rank)))
    fail(c, "the stream is of the rank's device",
         cat("rank ", rank, " has another device, or is another process"));
  if (!c.x.given || !c.out.given)
    fail(c, "x and out must be given", c.x.given ? "there is no out" : "there is no x");
  if (!c.out.writable) fail(c, "out must be writable", {});
  if (c.x.dtype != c.out.dtype)
    fail(c, "x and out are of one type", cat(name(c.x.dtype), " and ", name(c.out.dtype)));
  const bool floats = c.x.dtype == DType::f32 || c.x.dtype == DType::f16 || c.x.dtype == DType::bf16;
  if (sums(c.op) && !floats) fail(c, "sums are of f32, f16 or bf16", cat("x is ", name(c.x.dtype)));
  const std::uint64_t ranks = std::uint64_t(all.size()), x_parts = gives_parts(c.op) ? ranks : 1,
                      out_parts = c.op == Op::all_gather || c.op == Op::all_to_all ? ranks : 1;
  if (c.x.elements != c.count * x_parts || c.out.elements != c.count * out_parts)
    fail(c, cat("x has ", x_parts, " times and out ", out_parts, " times the elements of a part"),
         cat("x has ", c.x.elements, " elements, out ", c.out.elements, ", there are ", ranks, " ranks"));
  const auto begin = [](const View& v) { return v.address; };
  const auto end = [](const View& v) { return v.address + v.elements * std::uint64_t(cgp::bytes(v.dtype)); };
  const bool same = c.x.address == c.out.address && c.x.elements == c.out.elements;
  const bool own_part =
      c.op == Op::all_gather && c.x.address == c.out.address + std::uint64_t(rank) * (end(c.x) - begin(c.x));
  if (!same && !own_part && c.count && begin(c.x) < end(c.out) && begin(c.out) < end(c.x))
    fail(c, "x and out are the same memory or do not overlap", {});
}

void run(runtime::Stream& s, const Communicator& all, int rank, const Call& c) {
  check(s, all, rank, c);
  const DType type = sums(c.op) ? c.x.dtype : DType::f16;
  const auto size = std::uint64_t(cgp::bytes(type)), ranks = std::uint64_t(all.size());
  const std::uint64_t bytes = c.count * std::uint64_t(cgp::bytes(c.x.dtype));
  if ((c.x.address | c.out.address | bytes) % size)
    throw Unsupported({cat(c.name, ": an odd number of bytes, or an odd address"),
                       {},
                       cat(c.count, " elements of ", name(c.x.dtype)),
                       "pad each part to an even number of bytes"});
  const auto kernel = load(s.device(), make({c.op, type, all.size()}));
  const std::uint64_t held = gives_parts(c.op) ? ranks : c.op == Op::all_reduce_two_shot ? 2 : 1;
  const std::uint64_t piece = all.slot_bytes() / held / 16 * 16;
  if (!piece)
    throw ArgumentError({cat(c.name, ": the communicator's staging memory is too small"),
                         {},
                         cat(all.slot_bytes(), " bytes a slot, ", held, " parts of 16 bytes are needed"),
                         "give Communicator more bytes"});
  const auto aligned = [&](const View& v, bool several) {
    return std::uint32_t((v.address | (several ? bytes : 0)) % 16 == 0);
  };
  const bool takes_parts = c.op == Op::all_gather || c.op == Op::all_to_all;
  std::uint64_t first = 0;
  do {  // once for nothing, too: the ranks meet
    const std::uint64_t now = std::min(piece, bytes - first);
    launch::launch_kernel(
        s, kernel, runtime::grid_for_at_most(now / 16 + 1, kThreads, all.blocks(kExchangeBlocks)),
        CollectiveArgs<launch::HostArg>{
            .x = runtime::Arg::pointer(c.x.address + first, std::nullopt, true, c.x.backend),
            .out = runtime::Arg::pointer(c.out.address + first, std::nullopt, true, c.out.backend),
            .table = runtime::arg(all.table(rank)),
            .slot = all.slot_bytes(),
            .pitch = piece,
            .x_pitch = bytes,
            .out_pitch = bytes,
            .count = now / size,
            .rank = std::uint32_t(rank),
            .root = std::uint32_t(c.root),
            .x_aligned = aligned(c.x, gives_parts(c.op)),
            .out_aligned = aligned(c.out, takes_parts)});
    first += now;
  } while (first < bytes);
}

std::vector<runtime::KernelImage> ships(std::string_view arch) {
  std::vector<Variant> variants;
  for (Op op : {Op::all_reduce, Op::all_reduce_two_shot, Op::all_gather, Op::reduce_scatter, Op::broadcast,
                Op::all_to_all})
    for (DType t : {DType::f32, DType::f16, DType::bf16})
      if (sums(op) || t == DType::f16) variants.push_back(make({op, t, 8}));
  for (int ranks : {2, kMostRanks}) variants.push_back(make({Op::all_reduce, DType::bf16, ranks}));
  return images(variants, arch);
}

}  // namespace

void all_reduce(runtime::Stream& s, const Communicator& all, int rank, const View& x, const View& out,
                AllReduce how) {
  if (how == AllReduce::choose)
    how = all.size() > 2 && x.elements * std::uint64_t(cgp::bytes(x.dtype)) > kTwoShotBytes
              ? AllReduce::two_shot
              : AllReduce::one_shot;
  run(s, all, rank,
      {how == AllReduce::two_shot ? Op::all_reduce_two_shot : Op::all_reduce, "all_reduce", x, out,
       x.elements});
}
void all_gather(runtime::Stream& s, const Communicator& all, int rank, const View& x, const View& out) {
  run(s, all, rank, {Op::all_gather, "all_gather", x, out, x.elements});
}
void reduce_scatter(runtime::Stream& s, const Communicator& all, int rank, const View& x, const View& out) {
  run(s, all, rank, {Op::reduce_scatter, "reduce_scatter", x, out, out.elements});
}
void broadcast(runtime::Stream& s, const Communicator& all, int rank, int root, const View& x) {
  run(s, all, rank, {Op::broadcast, "broadcast", x, x, x.elements, root});
}
void all_to_all(runtime::Stream& s, const Communicator& all, int rank, const View& x, const View& out) {
  run(s, all, rank, {Op::all_to_all, "all_to_all", x, out, x.elements / std::uint64_t(all.size())});
}
void barrier(runtime::Stream& s, const Communicator& all, int rank) {
  const View nothing(0, 0, DType::f32, true, nullptr);
  run(s, all, rank, {Op::broadcast, "barrier", nothing, nothing, 0});
}

KernelEntry collective_entry() {
  return {"collective", "collectives between GPUs of one host", {}, {}, ships, {}};
}

}  // namespace cgp::kernels
