// SPDX-License-Identifier: Apache-2.0
// transpose: out[b, c, r] = in[b, r, c].
//   who      a block moves one tile; a thread moves V x V pieces of it (V elements are 16 bytes), transposed in
//            registers
//   memory   16-byte accesses on both sides (a half warp covers 256 contiguous bytes); the tile crosses shared
//            memory in 16-byte chunks, the chunk index XORed with the row so that no two lanes of a pass share a
//            bank
//   sync     one block barrier between writing and reading the tile
//   needs    any device; rows and cols multiples of V and 16-byte aligned slices, else one element an access
#include "cgp/kernels/transpose/transpose.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/transpose/transpose_tile.h"

namespace cgp::kernels {

transpose_impl::TileAt transpose_impl::tile_at(dsl::Kernel& k, const TransposeConfig& t,
                                               const dsl::Val<dsl::u32>& tiles_r,
                                               const dsl::Val<dsl::u32>& tiles_c) {
  using namespace dsl;
  const auto per_matrix = tiles_r * tiles_c, in_matrix = k.ctaid_x() % per_matrix;
  const auto place = [&](const Val<u32>& r, const Val<u32>& c) {
    return TileAt{to<u64>(k.ctaid_x() / per_matrix), to<u64>(r) * t.tile_rows, to<u64>(c) * t.tile_cols};
  };
  if (t.strip == 0) return place(in_matrix / tiles_c, in_matrix % tiles_c);
  if (t.strip == 1) return place(in_matrix % tiles_r, in_matrix / tiles_r);
  const auto strip = std::uint32_t(t.strip);
  const auto first = in_matrix / (tiles_r * strip) * strip, wide = min(tiles_c - first, Val<u32>(strip)),
             in_strip = in_matrix % (tiles_r * strip);
  return place(in_strip / wide, first + in_strip % wide);
}

namespace {

using namespace dsl;
using transpose_impl::tile_at, transpose_impl::walk, transpose_impl::TransposeArgs;

constexpr int kThreads = 256, kSide = 16;  // a 16 x 16 grid of threads

// A 16-byte access of V elements as registers, and the transpose of V x V of them held by one thread.
template <class T>
struct Micro {
  using Word = T;
  static constexpr int V = 16 / Elem<T>::bytes, words = V;  // elements and registers an access
  using Access = RegGroup<T, words>;
  static std::vector<Access> transposed(const std::vector<Access>& m) {
    std::vector<Access> out;
    for (int j = 0; j < V; ++j) out.push_back(Access::generate([&](int i) { return m[std::size_t(i)][j]; }));
    return out;
  }
};
// Halves stay packed, two to a register: 2 x 2 of them are transposed by two byte permutes.
template <>
struct Micro<b16> {
  using Word = b32;
  static constexpr int V = 8, words = 4;
  using Access = RegGroup<b32, words>;
  static std::vector<Access> transposed(const std::vector<Access>& m) {
    std::vector<Access> out;
    for (int j = 0; j < V; ++j)
      out.push_back(Access::generate([&](int i) {
        const auto& upper = m[std::size_t(2 * i)];
        const auto& lower = m[std::size_t(2 * i + 1)];
        return prmt(upper[j / 2], lower[j / 2], j % 2 ? 0x7632u : 0x5410u);
      }));
    return out;
  }
};
// Bytes stay packed, four to a register: 4 x 4 of them are transposed by eight byte permutes.
template <>
struct Micro<b8> {
  using Word = b32;
  static constexpr int V = 16, words = 4;
  using Access = RegGroup<b32, words>;
  static std::vector<Access> transposed(const std::vector<Access>& m) {
    std::vector<std::vector<Val<b32>>> out(V);
    for (int q = 0; q < V; q += 4)       // rows q to q + 3 of the input become word q / 4 of the output rows
      for (int w = 0; w < words; ++w) {  // which come from bytes 4w to 4w + 3
        const auto low = [&](int i) {
          return prmt(m[std::size_t(q + i)][w], m[std::size_t(q + i + 1)][w], 0x5140u);
        };
        const auto high = [&](int i) {
          return prmt(m[std::size_t(q + i)][w], m[std::size_t(q + i + 1)][w], 0x7362u);
        };
        const auto a = low(0), b = low(2), c = high(0), d = high(2);
        const auto o = std::size_t(4 * w);
        out[o].push_back(prmt(a, b, 0x5410u));
        out[o + 1].push_back(prmt(a, b, 0x7632u));
        out[o + 2].push_back(prmt(c, d, 0x5410u));
        out[o + 3].push_back(prmt(c, d, 0x7632u));
      }
    std::vector<Access> groups;
    for (const auto& o : out) groups.push_back(Access::generate([&](int i) { return o[std::size_t(i)]; }));
    return groups;
  }
};

template <class T>
void transpose_vector(Kernel& k, TransposeConfig t, typename TransposeArgs<T>::template Of<DeviceArg> p) {
  using M = Micro<T>;
  using Word = typename M::Word;
  constexpr int V = M::V, bank_groups = 8;  // 8 lanes of 16 bytes are one pass over the banks
  // A thread moves down x across pieces of V x V elements.
  const int down = t.tile_rows / (kSide * V), across = t.tile_cols / (kSide * V);
  const int chunks = kSide * down;  // 16-byte chunks in a row of the transposed tile
  k.block(kThreads);
  if (t.min_blocks) k.min_blocks(t.min_blocks);
  auto smem = k.shared<Word>(t.tile_rows * t.tile_cols / V * M::words, 128);
  const auto at = tile_at(k, t, p.tiles_r, p.tiles_c);
  const auto base = at.matrix * p.rows * p.cols;
  const auto tx = k.tid() % kSide, ty = k.tid() / kSide;

  std::vector<std::vector<typename M::Access>> subtiles;
  for (int q = 0; q < down; ++q)
    for (int a = 0; a < across; ++a) {
      const auto row = at.row + to<u64>(ty * V) + q * kSide * V,
                 col = at.col + to<u64>(tx * V) + a * kSide * V;
      const auto inside = (row < p.rows) & (col < p.cols);
      const auto from = walk(p.in.at(base + row * p.cols + col).template as<Word>(),
                             p.cols / std::uint64_t(V) * std::uint64_t(M::words), V);
      std::vector<typename M::Access> m;
      for (int j = 0; j < V; ++j)
        m.push_back(from[std::size_t(j)].template ld_if<M::words, nc>(inside, 0, Val<Word>(0)));
      subtiles.push_back(std::move(m));
    }
  // The chunk index is XORed with the row so that neither side of the exchange has bank conflicts.
  for (int q = 0; q < down; ++q)
    for (int a = 0; a < across; ++a) {
      const auto transposed = M::transposed(subtiles[std::size_t(q * across + a)]);
      const auto chunk = (ty ^ (tx & (bank_groups - 1))) + std::uint32_t(q * kSide);
      auto column = smem.at(((tx + std::uint32_t(a * kSide)) * std::uint32_t(V * chunks) + chunk) * M::words);
      for (int j = 0; j < V; ++j) column.template st<M::words>(j * chunks, transposed[std::size_t(j)]);
    }
  k.sync();
  for (int a = 0; a < across; ++a)
    for (int q = 0; q < down; ++q) {
      const auto row = at.col + to<u64>(ty * V) + a * kSide * V,
                 col = at.row + to<u64>(tx * V) + q * kSide * V;
      const auto have = (row < p.cols) & (col < p.rows);
      const auto chunk = (tx ^ (ty & (bank_groups - 1))) + std::uint32_t(q * kSide);
      auto from = smem.at(((ty + std::uint32_t(a * kSide)) * std::uint32_t(V * chunks) + chunk) * M::words);
      const auto to = walk(p.out.at(base + row * p.rows + col).template as<Word>(),
                           p.rows / std::uint64_t(V) * std::uint64_t(M::words), V);
      for (int j = 0; j < V; ++j)
        to[std::size_t(j)].template st_if<M::words>(have, 0, from.template ld<M::words>(j * chunks));
    }
}

// One element an access: any shape, any alignment. Rows of the tile are padded against bank conflicts. All
// loads of a thread are on their way before the first is stored.
template <class T>
void transpose_scalar(Kernel& k, TransposeConfig t, typename TransposeArgs<T>::template Of<DeviceArg> p) {
  const int side = t.tile_rows, pitch = side + (Elem<T>::bytes < 4 ? 4 / Elem<T>::bytes : 1),
            lines = kThreads / side;
  k.block(kThreads);
  if (t.min_blocks) k.min_blocks(t.min_blocks);
  auto smem = k.shared<T>(side * pitch);
  const auto at = tile_at(k, t, p.tiles_r, p.tiles_c);
  const auto base = at.matrix * p.rows * p.cols;
  const auto tx = k.tid() % std::uint32_t(side), ty = k.tid() / std::uint32_t(side);
  const auto row0 = at.row + to<u64>(ty), col = at.col + to<u64>(tx);
  const auto rows_left =
      select((col < p.cols) & (row0 < p.rows), min(p.rows - row0, Val<u64>(side)), Val<u64>(0));
  const auto many = dsl::to<u32>(rows_left);
  const auto from = walk(p.in.at(base + row0 * p.cols + col), p.cols * std::uint64_t(lines), side / lines);
  std::vector<Val<T>> held;
  for (int j = 0; j < side; j += lines)
    held.push_back(
        from[std::size_t(j / lines)].template ld_if<1, nc>(many > std::uint32_t(j), 0, Val<T>(0))[0]);
  for (int j = 0; j < side; j += lines) smem.st((ty + j) * pitch + tx, held[std::size_t(j / lines)]);
  k.sync();
  const auto out_row0 = at.col + to<u64>(ty), out_col = at.row + to<u64>(tx);
  const auto out_left =
      select((out_col < p.rows) & (out_row0 < p.cols), min(p.cols - out_row0, Val<u64>(side)), Val<u64>(0));
  const auto out_many = to<u32>(out_left);
  const auto to =
      walk(p.out.at(base + out_row0 * p.rows + out_col), p.rows * std::uint64_t(lines), side / lines);
  for (int j = 0; j < side; j += lines)
    to[std::size_t(j / lines)].st_if(out_many > std::uint32_t(j), 0, smem.ld(tx * pitch + ty + j));
}

template <class T>
Variant make(const TransposeConfig& t) {
  return config_variant("transpose", t, 75,
                        t.access == TransposeAccess::vector ? transpose_vector<T> : transpose_scalar<T>);
}

// Bytes of shared memory of a scalar variant.
std::uint64_t scalar_smem(int element_bytes, int side) {
  return std::uint64_t(side) * (std::uint64_t(side) + (element_bytes < 4 ? 4 / element_bytes : 1)) *
         element_bytes;
}

}  // namespace

Variant transpose_variant(const TransposeConfig& t) {
  if (t.access == TransposeAccess::sector) return transpose_impl::sectors_variant(t);
  switch (t.bits) {
    case 8:
      return make<b8>(t);
    case 16:
      return make<b16>(t);
    case 32:
      return make<b32>(t);
    default:
      return make<b64>(t);
  }
}

TransposeChoice select_transpose(int element_bytes, const TransposeShape& shape, std::uint64_t in_address,
                                 std::uint64_t out_address, const runtime::DeviceInfo& device) {
  const int bits = 8 * element_bytes, v = 16 / element_bytes;  // elements of a 16-byte access
  std::string why;
  if (shape.rows % std::uint64_t(v) || shape.cols % std::uint64_t(v))
    why = text::cat("rows = ", shape.rows, " and cols = ", shape.cols, " are not both multiples of ", v);
  else if (in_address % 16 || out_address % 16)
    why = "a slice does not start at a multiple of 16 bytes";
  if (why.empty()) {  // measured on an H200: README
    const TransposeConfig t{
        kSide * v, kSide * v, element_bytes < 8, element_bytes < 8 ? 0 : 8, TransposeAccess::vector, bits};
    return {transpose_variant(t), t,
            text::cat("aligned, and rows and cols are multiples of ", v, ": 16-byte accesses")};
  }
  TransposeConfig t{32, 32, 1, 0, TransposeAccess::element, bits};
  const bool large = std::min(shape.rows, shape.cols) >= 256;
  if (large && device.max_cluster >= 8 && device.smem_per_block_optin > 200 * 1024) {
    t = transpose_impl::sectors_config(element_bytes);
    text::append(why, text::cat(": rows by bulk copies, whole sectors of the output, tiles of ", t.tile_rows,
                                " x ", t.tile_cols));
    return {transpose_variant(t), t, std::move(why)};
  }
  if (large) {
    const int side = element_bytes == 1 ? 64 : 128;
    t.tile_rows = t.tile_cols = side, t.strip = element_bytes == 1 ? 4 : 1;
    t.min_blocks = element_bytes == 1 ? 6 : element_bytes < 8 ? 2 : 0;
    const std::uint64_t most = device.smem_per_block_optin ? device.smem_per_block_optin : 48 * 1024;
    if (scalar_smem(element_bytes, t.tile_rows) > most)
      t.tile_rows = t.tile_cols = 64, t.strip = 1, t.min_blocks = 0;
  }
  text::append(why, text::cat(": one element an access, tiles of ", t.tile_rows, " x ", t.tile_cols));
  return {transpose_variant(t), t, std::move(why)};
}

void run_transpose(runtime::Stream& s, const TransposeChoice& choice, const TransposeShape& shape,
                   const runtime::Arg& in, const runtime::Arg& out) {
  const auto tiles = [](std::uint64_t n, int tile) {
    return (n + std::uint64_t(tile) - 1) / std::uint64_t(tile);
  };
  if (shape.batch == 0 || shape.rows == 0 || shape.cols == 0) return;
  // Where a tile begins with a sector it ends up to a sector earlier.
  const int sector = transpose_impl::kSectorBytes * 8 / choice.config.bits;  // elements
  const auto more = std::uint64_t(choice.config.access == TransposeAccess::sector ? sector - 1 : 0);
  const std::uint64_t tr = tiles(shape.rows + more, choice.config.tile_rows),
                      tc = tiles(shape.cols, choice.config.tile_cols);
  launch::launch_kernel(s, load(s.device(), choice.variant), runtime::grid_for(shape.batch * tr * tc, 1),
                        transpose_impl::TransposeArgs<b8>::Of<launch::HostArg>{.in = in,
                                                                               .out = out,
                                                                               .rows = shape.rows,
                                                                               .cols = shape.cols,
                                                                               .tiles_r = std::uint32_t(tr),
                                                                               .tiles_c = std::uint32_t(tc)});
}

namespace {

void launch_transpose(runtime::Stream& s, int element_bytes, const TransposeShape& shape,
                      const runtime::Arg& in, const runtime::Arg& out) {
  run_transpose(s, select_transpose(element_bytes, shape, in.word, out.word, s.device().info()), shape, in,
                out);
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
        in_(d.alloc<std::byte>(host_.bytes.size(), "in")),
        out_(d.alloc<std::byte>(host_.bytes.size(), "out")) {
    in_.upload(host_.bytes);
    const auto choice = select_transpose(element(), shape, in_.address(), out_.address(), d.info());
    variant = choice.variant.name, why = choice.why;
    images = {image(choice.variant, d.info().arch)};
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
  e.images = [](std::string_view arch) {
    std::vector<Variant> all;
    runtime::DeviceInfo device;
    device.max_cluster = arch == "sm_90a" || arch == "sm_100a" ? 8 : 1;
    device.smem_per_block_optin = 1024 * (arch == "sm_90a" || arch == "sm_100a" ? 227
                                          : arch == "sm_75"                     ? 64
                                                                                : 99);
    for (int bytes : {1, 2, 4, 8})
      for (std::uint64_t n : {256, 7, 401})
        all.push_back(select_transpose(bytes, {1, n, n}, 0, 0, device).variant);
    return images(all, arch);
  };
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
      o.agree("in", *a, {{"batch", shape.batch}, {"rows", shape.rows}, {"cols", shape.cols}});
      return std::unique_ptr<Case>(std::make_unique<TransposeCase>(d, *a, shape));
    }
    return std::unique_ptr<Case>(std::make_unique<TransposeCase>(
        d, random_array(t, {shape.batch, shape.rows, shape.cols}, seed), shape));
  };
  return e;
}

}  // namespace cgp::kernels
