// SPDX-License-Identifier: Apache-2.0
// transpose of matrices whose rows begin anywhere (sm_90): whole sectors on both sides.
//   who      a block moves one tile; a lane stores 4 bytes (8 of an 8-byte element) of a row of the output
//   memory   a bulk copy brings each row of the tile, from the 16-byte boundary before it to the one behind
//            it; where those lie outside the matrices single elements do. In each row of the output the tile
//            begins where a sector does: it takes up to a sector of rows before its own from the input, and
//            leaves as many of its last to the tile below
//   sync     one barrier that counts the bytes of the copies
//   banks    rows of an odd number of 16-byte chunks, and a chunk more where the rows' shifts within 16 bytes
//            come round: lanes that read down a column hit 32 banks (columns odd; else 16 or 8)
#include "cgp/dsl/pipeline/bulk_ring.h"
#include "cgp/kernels/transpose/transpose_tile.h"

namespace cgp::kernels::transpose_impl {
namespace {

using namespace dsl;

constexpr int kSectorThreads = 256, kSectorWarps = 8;

template <class T>
class Sectors {
 public:
  static constexpr int size = Elem<T>::bytes, per_lane = size < 4 ? 4 / size : 1,
                       sector = kSectorBytes / size;

  Sectors(Kernel& k, const TransposeConfig& t, const typename TransposeArgs<T>::template Of<DeviceArg>& p)
      : k_(k),
        t_(t),
        in_(p.in),
        out_(p.out),
        rows_(p.rows),
        cols_(p.cols),
        tiles_(p.tiles_r * p.tiles_c),
        chunks_(t.tile_cols * size / 16 + 1),
        held_(t.tile_rows + sector - 1),
        at_(tile_at(k, t, p.tiles_r, p.tiles_c)),
        period_(period(p.cols)),
        rows_in_(k, 1, (chunks_ * held_ + held_ / 2 + 1) * 16, kSectorThreads),
        smem_(rows_in_.stage(Val<u32>(0))) {}

  void run() {
    load();
    rows_in_.wait({});
    const auto inside = (at_.row >= std::uint64_t(sector - 1)) &
                        (at_.row + std::uint64_t(t_.tile_rows) <= rows_) &
                        (at_.col + std::uint64_t(t_.tile_cols) <= cols_);
    k_.if_(
        inside, [&] { store(true); }, [&] { store(false); });
  }

 private:
  // Rows of the input after which their shifts within 16 bytes come round, seen by lanes of `per_lane` rows:
  // the logarithm; 31 where all are the same.
  static Val<u32> period(const Val<u64>& cols) {
    constexpr std::uint32_t lane = per_lane == 4 ? 2 : per_lane == 2 ? 1 : 0;
    const auto low = to<u32>(cols);
    const auto odd = (low & 1) != 0;
    if (size == 8) return select(odd, Val<u32>(1), Val<u32>(31));
    return select(odd, Val<u32>(2 + lane),
                  select((low & 2) != 0, Val<u32>(1 + lane), Val<u32>(lane ? lane : 31)));
  }
  // Where row i of those held begins in shared memory, bytes.
  Val<u32> row_at(const Val<u32>& i) const { return (i * std::uint32_t(chunks_) + (i >> period_)) * 16; }
  // The row of the matrix that row i is; beyond the last for those before the first.
  Val<u64> row_of(const Val<u32>& i) const { return at_.row + to<u64>(i) - std::uint64_t(sector - 1); }
  Val<u64> index(const Val<u64>& row) const { return (at_.matrix * rows_ + row) * cols_ + at_.col; }

  // One thread a row.
  void load() const {
    const auto i = k_.tid();
    const auto row = row_of(i);
    const auto have = (i < std::uint32_t(held_)) & (row < rows_);
    const auto place = in_.at(index(row));
    const auto many = min(cols_ - at_.col, Val<u64>(t_.tile_cols));
    const auto from = place.address(), end = from + many * std::uint64_t(size);
    const auto down = [](const Val<u64>& a) { return a & ~std::uint64_t(15); };
    const auto up = [&](const Val<u64>& a) { return down(a + std::uint64_t(15)); };
    const auto memory = in_.address(),
               behind = memory + to<u64>(k_.nctaid_x() / tiles_) * rows_ * cols_ * std::uint64_t(size);
    const auto first = down(from);
    const auto left = select(first < memory, up(from), first);
    const auto right = select(up(end) > behind, max(down(end), left), up(end));
    const auto to_row = smem_.at(row_at(i));
    const auto elementwise = [&](const Val<u64>& begin, const Val<u64>& stop) {
      k_.loop(range(begin, stop, Val<u64>(size)), [&](Val<u64> a) {
        const auto v = place.at(dsl::to<u32>(a - from) / std::uint32_t(size)).ld();
        to_row.at(dsl::to<u32>(a - first)).template as<T>().st(0, v);
      });
    };
    k_.if_(have & ((left > from) | (right < end)), [&] {
      elementwise(from, min(left, end));
      elementwise(max(right, from), end);
    });
    const auto bytes = select(have, dsl::to<u32>(right - left), Val<u32>(0));
    rows_in_.expect(Val<u32>(0), bytes);
    k_.if_(bytes != 0,
           [&] { rows_in_.copy(Val<u32>(0), to_row.at(dsl::to<u32>(left - first)), In<b8>(left), bytes); });
  }

  // A warp takes columns of the input that are a sector's elements apart: their rows of the output all begin
  // equally far behind a sector's beginning.
  void store(bool inside) const {
    constexpr int phases = sector > kSectorWarps ? sector / kSectorWarps : 1, step = kSectorWarps * phases;
    const auto cols_left = dsl::to<u32>(min(cols_ - at_.col, Val<u64>(t_.tile_cols)));
    for (int p = 0; p < phases; ++p) {
      const auto column = k_.warp_index() + std::uint32_t(p * kSectorWarps);
      const auto out_row = (at_.matrix * cols_ + at_.col + dsl::to<u64>(column)) * rows_;
      const auto corner = out_.at(out_row + at_.row);
      const auto shift = dsl::to<u32>(corner.address()) & std::uint32_t(kSectorBytes - 1);  // bytes
      const auto lane = k_.warp().lane() * std::uint32_t(per_lane) + std::uint32_t(sector - 1) -
                        shift / std::uint32_t(size);
      const auto many = select(cols_left > column, cols_left - column, Val<u32>(0));
      const auto to = walk(out_.at(out_row + row_of(lane)), rows_ * std::uint64_t(step), t_.tile_cols / step);
      for (int r = 0; r < t_.tile_rows; r += 32 * per_lane) {
        std::vector<Ptr<shared, T>> from;
        std::vector<Val<u32>> limit;  // columns of this lane's rows that there are
        for (int v = 0; v < per_lane; ++v) {
          const auto i = lane + std::uint32_t(r + v);
          from.push_back(smem_.at(row_at(i) + shift_of(i) + column * std::uint32_t(size)).template as<T>());
          if (!inside) limit.push_back(select(row_of(i) < rows_, many, Val<u32>(0)));
        }
        for (int c = 0; c < t_.tile_cols; c += step) {
          const auto& row = to[std::size_t(c / step)];
          if (inside) {
            put(row, r, from, c);
            continue;
          }
          for (int v = 0; v < per_lane; ++v) {
            const auto& f = from[std::size_t(v)];
            const auto have = limit[std::size_t(v)] > std::uint32_t(c);
            row.st_if(have, r + v, f.template ld_if<1>(have, c, Val<T>(0))[0]);
          }
        }
      }
    }
  }
  // Row i begins so many bytes behind its first 16-byte boundary.
  Val<u32> shift_of(const Val<u32>& i) const {
    const auto row = at_.row - std::uint64_t(sector - 1);
    const auto first = dsl::to<u32>(in_.at(index(row)).address());
    return (first + i * dsl::to<u32>(cols_) * std::uint32_t(size)) & 15;
  }
  static void put(const Out<T>& row, int r, const std::vector<Ptr<shared, T>>& from, int c) {
    if constexpr (per_lane == 1) {
      row.st(r, from[0].ld(c));
    } else {
      using U = std::conditional_t<per_lane == 2, u16, u8>;
      std::vector<Val<b32>> v;
      for (const auto& f : from) v.push_back(bits<b32>(dsl::to<u32>(f.template as<U>().ld(c))));
      const auto word = per_lane == 2 ? prmt(v[0], v[1], 0x5410u)
                                      : prmt(prmt(v[0], v[1], 0x0040u),
                                             prmt(v[per_lane - 2], v[per_lane - 1], 0x0040u), 0x5410u);
      row.template as<b32>().st(r / per_lane, word);
    }
  }

  Kernel& k_;
  const TransposeConfig& t_;
  In<T> in_;
  Out<T> out_;
  Val<u64> rows_, cols_;
  Val<u32> tiles_;
  int chunks_, held_;  // 16 bytes of a row, rows
  TileAt at_;
  Val<u32> period_;
  BulkRing rows_in_;
  Ptr<shared, b8> smem_;
};

template <class T>
void transpose_sectors(Kernel& k, TransposeConfig t, typename TransposeArgs<T>::template Of<DeviceArg> p) {
  k.block(kSectorThreads);
  if (t.min_blocks) k.min_blocks(t.min_blocks);
  Sectors<T>(k, t, p).run();
}

}  // namespace

// Three blocks on an SM with 227 KB, registers for two (measured: README); an odd number of chunks a row.
TransposeConfig sectors_config(int element_bytes) {
  const int chunks = element_bytes == 1 ? 26 : element_bytes == 2 ? 30 : 32;
  return {128, chunks * 16 / element_bytes, 1, 2, TransposeAccess::sector, 8 * element_bytes};
}

Variant sectors_variant(const TransposeConfig& t) {
  const auto of = [&](auto kernel) { return config_variant("transpose", t, 90, kernel); };
  switch (t.bits) {
    case 8:
      return of(transpose_sectors<b8>);
    case 16:
      return of(transpose_sectors<b16>);
    case 32:
      return of(transpose_sectors<b32>);
    default:
      return of(transpose_sectors<b64>);
  }
}

}  // namespace cgp::kernels::transpose_impl
