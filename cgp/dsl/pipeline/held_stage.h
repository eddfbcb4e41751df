// SPDX-License-Identifier: Apache-2.0
#pragma once
// HeldStage: a stage of a ring that is read for longer than one statement, e.g. until the next iteration of a
// loop. It may go round a loop, is read as often as needed, and is freed once.
//   HeldStage<TileQ> q(ring.take(wg));
//   ... wgmma(wg, acc, keys, q.get<0>()) ... wait ...
//   std::move(q).free(wg);
// A stage that is never freed is a BuildError at the line of its take, as for every ring.
#include "cgp/dsl/pipeline/ring.h"

namespace cgp::dsl {

template <class... Tiles>
class [[nodiscard]] HeldStage {
 public:
  explicit HeldStage(Filled<ByThreads, Tiles...> stage)
      : base_(stage.template get<0>().base()), token_(std::move(stage).token()) {}
  HeldStage(HeldStage&&) = default;
  /// Tile I of the stage.
  template <int I>
  auto get() const {
    return SmemTile<std::tuple_element_t<std::size_t(I), std::tuple<Tiles...>>>(base_, offset<I>());
  }
  /// The stage may be filled again. The products that read it have been waited for; for reads with ld or
  /// ldmatrix use Filled::release, which also synchronises the warp.
  void free(Warpgroup& wg, Here at = Here::now()) && {
    wg.converged("freeing a stage", at);
    std::move(token_).release(at);
  }

 private:
  friend struct Carry<HeldStage>;
  HeldStage(const Val<u32>& base, record::StageToken token) : base_(base), token_(std::move(token)) {}
  template <int I>
  static constexpr int offset() {
    constexpr int bytes[] = {Tiles::bytes...}, align[] = {Tiles::align...};
    int at = 0;
    for (int i = 0;; at += bytes[i++]) {
      at = (at + align[i] - 1) / align[i] * align[i];
      if (i == I) return at;
    }
  }
  Val<u32> base_;
  record::StageToken token_;
};

template <class... Tiles>
struct Carry<HeldStage<Tiles...>> {
  using S = HeldStage<Tiles...>;
  static S home(Kernel& k, S s) {
    auto base = Carry<Val<u32>>::home(k, s.base_);
    return S(base, std::move(s.token_).home(k));
  }
  static S settle(Kernel& k, S& home, S next) {
    auto base = Carry<Val<u32>>::settle(k, home.base_, next.base_);
    return S(base, home.token_.settle(k, next.token_));
  }
  static S view(S& home) { return S(home.base_, home.token_.view()); }
};

}  // namespace cgp::dsl
