// SPDX-License-Identifier: Apache-2.0
// transpose: out[b, c, r] = in[b, r, c].
//   who      a block moves one tile of 16V x 16V elements; a thread V x V of it, transposed in its registers
//   memory   16-byte accesses on both sides (a half warp covers 256 contiguous bytes); the tile crosses
//            shared memory in 16-byte chunks, the chunk index XORed with the row so that no two lanes of a
//            pass share a bank
//   sync     one block barrier between writing and reading the tile
//   needs    any device; rows and cols multiples of V and 16-byte aligned slices, else the scalar variant
#include "cgp/kernels/transpose/transpose.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/arith.h"
#include "cgp/dsl/convert.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kThreads = 256, kSide = 16;  // a 16 x 16 grid of threads

// The block's tile: which matrix of the batch, and the first row and column.
struct TileAt {
  Val<u64> matrix, row, col;
};
TileAt tile_at(Kernel& k, Val<u32> tiles_r, Val<u32> tiles_c, int tile, bool down) {
  const auto per_matrix = tiles_r * tiles_c, in_matrix = k.ctaid_x() % per_matrix;
  const auto r = down ? in_matrix % tiles_r : in_matrix / tiles_c,
             c = down ? in_matrix / tiles_r : in_matrix % tiles_c;
  return {to<u64>(k.ctaid_x() / per_matrix), to<u64>(r) * tile, to<u64>(c) * tile};
}

template <class T, int V>  // V elements an access
void transpose_vector(Kernel& k, In<T> in, Out<T> out, Val<u64> rows, Val<u64> cols, Val<u32> tiles_r,
                      Val<u32> tiles_c) {
  constexpr int tile = kSide * V, bank_groups = 128 / (V * Elem<T>::bytes);
  k.block(kThreads);
  auto smem = k.shared<T>(tile * tile, 128);
  // 8-byte elements stream better along the rows of the input, narrower ones along those of the output
  // (README).
  const auto at = tile_at(k, tiles_r, tiles_c, tile, /*down=*/Elem<T>::bytes < 8);
  const auto base = at.matrix * rows * cols;
  const auto tx = k.tid() % kSide, ty = k.tid() / kSide;
  const auto micro_x = to<u64>(tx * V), micro_y = to<u64>(ty * V);

  const auto row = at.row + micro_y, col = at.col + micro_x;
  k.if_((row < rows) & (col < cols), [&] {
    std::vector<RegGroup<T, V>> m;  // (V rows, V columns)
    for (int j = 0; j < V; ++j)
      m.push_back(in.at(base + (row + j) * cols + col).template ld<V, nc, no_allocate>());
    auto column = smem.at((tx * V * kSide + (ty ^ (tx & (bank_groups - 1)))) * V);
    for (int j = 0; j < V; ++j)
      column.template st<V>(j * kSide, RegGroup<T, V>::generate([&](int i) { return m[std::size_t(i)][j]; }));
  });
  k.sync();
  const auto out_row = at.col + micro_y, out_col = at.row + micro_x;
  k.if_((out_row < cols) & (out_col < rows), [&] {
    auto chunk = smem.at((ty * V * kSide + (tx ^ (ty & (bank_groups - 1)))) * V);
    for (int j = 0; j < V; ++j)
      out.at(base + (out_row + j) * rows + out_col).template st<V>(0, chunk.template ld<V>(j * kSide));
  });
}

// One element an access: any shape, any alignment. A 32 x 32 tile, rows padded by one element against
// conflicts.
template <class T>
void transpose_scalar(Kernel& k, In<T> in, Out<T> out, Val<u64> rows, Val<u64> cols, Val<u32> tiles_r,
                      Val<u32> tiles_c) {
  constexpr int tile = 32, pitch = tile + (Elem<T>::bytes < 4 ? 4 / Elem<T>::bytes : 1),
                lines = kThreads / tile;
  k.block(kThreads);
  auto smem = k.shared<T>(tile * pitch);
  const auto at = tile_at(k, tiles_r, tiles_c, tile, /*down=*/true);
  const auto base = at.matrix * rows * cols;
  const auto tx = k.tid() % tile, ty = k.tid() / tile;
  const auto col = at.col + to<u64>(tx), out_col = at.row + to<u64>(tx);
  for (int j = 0; j < tile; j += lines) {
    const auto row = at.row + to<u64>(ty + j);
    k.if_((row < rows) & (col < cols),
          [&] { smem.st((ty + j) * pitch + tx, in.ld(base + row * cols + col)); });
  }
  k.sync();
  for (int j = 0; j < tile; j += lines) {
    const auto out_row = at.col + to<u64>(ty + j);
    k.if_((out_row < cols) & (out_col < rows),
          [&] { out.st(base + out_row * rows + out_col, smem.ld(tx * pitch + ty + j)); });
  }
}

}  // namespace

std::span<const Variant> transpose_variants() {
  // Pairs for 1, 2, 4 and 8 bytes: vector, scalar.
  static const std::vector<Variant> v{
      variant("transpose_b8_v8", 75, transpose_vector<b8, 8>),
      variant("transpose_b8", 75, transpose_scalar<b8>),
      variant("transpose_b16_v8", 75, transpose_vector<b16, 8>),
      variant("transpose_b16", 75, transpose_scalar<b16>),
      variant("transpose_b32_v4", 75, transpose_vector<b32, 4>),
      variant("transpose_b32", 75, transpose_scalar<b32>),
      variant("transpose_b64_v2", 75, transpose_vector<b64, 2>),
      variant("transpose_b64", 75, transpose_scalar<b64>),
  };
  return v;
}

TransposeChoice select_transpose(int element_bytes, const TransposeShape& shape, std::uint64_t in_address,
                                 std::uint64_t out_address) {
  const int index = element_bytes == 1 ? 0 : element_bytes == 2 ? 1 : element_bytes == 4 ? 2 : 3;
  const std::uint64_t v = element_bytes == 1 ? 8 : 16 / std::uint64_t(element_bytes);
  const auto& all = transpose_variants();
  const auto scalar = [&](std::string why) {
    return TransposeChoice{&all[std::size_t(2 * index + 1)], 32, why};
  };
  if (shape.rows % v || shape.cols % v)
    return scalar(
        text::cat("rows = ", shape.rows, " and cols = ", shape.cols, " are not both multiples of ", v));
  const std::uint64_t access = v * std::uint64_t(element_bytes);
  if (in_address % access || out_address % access)
    return scalar(text::cat("a slice does not start at a multiple of ", access, " bytes"));
  return {&all[std::size_t(2 * index)], std::uint32_t(kSide * v),
          text::cat("aligned, and rows and cols are multiples of ", v, ": ", access, "-byte accesses")};
}

namespace {

std::uint64_t tiles(std::uint64_t n, std::uint64_t tile) { return (n + tile - 1) / tile; }

void launch_transpose(runtime::Stream& s, int element_bytes, const TransposeShape& shape,
                      const runtime::Arg& in, const runtime::Arg& out) {
  const auto choice = select_transpose(element_bytes, shape, in.word, out.word);
  const std::uint64_t tr = tiles(shape.rows, choice.tile), tc = tiles(shape.cols, choice.tile);
  if (shape.batch == 0 || tr == 0 || tc == 0) return;
  const auto grid = runtime::grid_for(shape.batch * tr * tc, 1);
  load(s.device(), *choice.variant)(s, grid, in, out, shape.rows, shape.cols, std::uint32_t(tr),
                                    std::uint32_t(tc));
}

}  // namespace

template <class T>
void transpose(runtime::Stream& s, const runtime::Slice<const T>& in, const runtime::Slice<T>& out,
               const TransposeShape& shape) {
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
  const std::uint64_t n = shape.batch * shape.rows * shape.cols;
  if (in.size() != n || out.size() != n)
    throw ArgumentError(
        {"transpose: both slices must have batch * rows * cols elements",
         {},
         text::cat("batch * rows * cols = ", n, ", in has ", in.size(), ", out has ", out.size()),
         {}});
  if (n && in.address() < out.address() + out.bytes() && out.address() < in.address() + in.bytes())
    throw ArgumentError({"transpose: in and out must not overlap", {}, {}, "transpose into a second buffer"});
  launch_transpose(s, int(sizeof(T)), shape, runtime::arg(in), runtime::arg(out));
}
template void transpose(runtime::Stream&, const runtime::Slice<const std::uint8_t>&,
                        const runtime::Slice<std::uint8_t>&, const TransposeShape&);
template void transpose(runtime::Stream&, const runtime::Slice<const half>&, const runtime::Slice<half>&,
                        const TransposeShape&);
template void transpose(runtime::Stream&, const runtime::Slice<const bfloat16>&,
                        const runtime::Slice<bfloat16>&, const TransposeShape&);
template void transpose(runtime::Stream&, const runtime::Slice<const std::uint16_t>&,
                        const runtime::Slice<std::uint16_t>&, const TransposeShape&);
template void transpose(runtime::Stream&, const runtime::Slice<const float>&, const runtime::Slice<float>&,
                        const TransposeShape&);
template void transpose(runtime::Stream&, const runtime::Slice<const std::uint32_t>&,
                        const runtime::Slice<std::uint32_t>&, const TransposeShape&);
template void transpose(runtime::Stream&, const runtime::Slice<const double>&, const runtime::Slice<double>&,
                        const TransposeShape&);
template void transpose(runtime::Stream&, const runtime::Slice<const std::uint64_t>&,
                        const runtime::Slice<std::uint64_t>&, const TransposeShape&);

namespace {

class TransposeCase : public Case {
 public:
  TransposeCase(const runtime::Device& d, HostArray host, TransposeShape shape)
      : host_(std::move(host)),
        shape_(shape),
        in_(d.alloc<std::byte>(host_.bytes.size())),
        out_(d.alloc<std::byte>(host_.bytes.size())) {
    in_.upload(host_.bytes);
    const auto choice = select_transpose(element(), shape, in_.address(), out_.address());
    variant = choice.variant->name, why = choice.why;
    images = {image(*choice.variant, d.info().arch)};
    bytes = 2.0 * double(host_.bytes.size());
  }
  void launch(runtime::Stream& s) override {
    launch_transpose(s, element(), shape_, runtime::arg(std::as_const(in_)), runtime::arg(out_));
  }
  std::vector<NamedArray> outputs() override {
    HostArray a(host_.dtype, {shape_.batch, shape_.cols, shape_.rows});
    out_.download(a.bytes);
    return {{"out", std::move(a)}};
  }
  Check verify() override {
    std::vector<double> want(host_.size());
    for (std::uint64_t b = 0; b < shape_.batch; ++b)
      for (std::uint64_t r = 0; r < shape_.rows; ++r)
        for (std::uint64_t c = 0; c < shape_.cols; ++c)
          want[(b * shape_.cols + c) * shape_.rows + r] = host_.at((b * shape_.rows + r) * shape_.cols + c);
    return compare(outputs()[0].array, want, [](std::uint64_t) { return 0.0; });
  }

 private:
  int element() const { return cgp::bytes(host_.dtype); }
  HostArray host_;
  TransposeShape shape_;
  runtime::Buffer<std::byte> in_, out_;
};

}  // namespace

KernelEntry transpose_entry() {
  KernelEntry e;
  e.name = "transpose";
  e.summary = "out[b, c, r] = in[b, r, c], elements of 1, 2, 4 or 8 bytes";
  e.options = {{"dtype", "f32", "any element type"},
               {"batch", "1", "matrices"},
               {"rows", "1024", "of the input"},
               {"cols", "1024", "of the input"}};
  e.inputs = {"in"};
  e.images = [](std::string_view arch) { return images(transpose_variants(), arch); };
  e.prepare = [](const runtime::Device& d, const Options& o, const std::vector<NamedArray>& given,
                 std::uint64_t seed) {
    std::vector<DType> any;
    for (int i = 0; i < kDTypeCount; ++i) any.push_back(DType(i));
    DType t = o.dtype("dtype", any);
    TransposeShape shape{o.size("batch"), o.size("rows"), o.size("cols")};
    if (const HostArray* a = find_input(given, "in")) {
      if (a->shape.size() < 2 || a->shape.size() > 3)
        throw ArgumentError({"transpose: in must have 2 or 3 dimensions", {}, describe_shape(a->shape), {}});
      t = a->dtype;
      shape = {a->shape.size() == 3 ? a->shape[0] : 1, a->shape[a->shape.size() - 2], a->shape.back()};
      return std::unique_ptr<Case>(std::make_unique<TransposeCase>(d, *a, shape));
    }
    return std::unique_ptr<Case>(std::make_unique<TransposeCase>(
        d, random_array(t, {shape.batch, shape.rows, shape.cols}, seed), shape));
  };
  return e;
}

}  // namespace cgp::kernels
