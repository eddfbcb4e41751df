// SPDX-License-Identifier: Apache-2.0
// vecadd: c[i] = a[i] + b[i].  The smallest kernel; read it first.
//   who      grid-stride; thread i owns elements W*i .. W*i+W-1
//   memory   reads 2n elements, writes n, 16 bytes an access when the slices are aligned; nothing is shared
//   needs    any device
#include "cgp/kernels/vecadd/vecadd.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/convert.h"
#include "cgp/kernels/vecadd/vecadd_ref.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kThreads = 256;

// C++ control flow runs now, while the kernel is recorded; k.* control flow runs on the GPU.
// The signature is the kernel's ABI: parameters are declared, and launches are checked, from it.
template <class T, int W>  // elements per access: decides a type, so a template parameter
void vecadd_kernel(Kernel& k, In<T> a, In<T> b, Disjoint<T> c, Val<u64> n) {
  k.block(kThreads);
  k.grid_stride(n / W, [&](ThreadIndex64 i) {  // no other thread of the launch holds this index
    auto x = a.template ld<W>(i);              // ld.global.nc.v4.f32
    auto y = b.template ld<W>(i);
    // Half types add in f32 and round once more: 24 bits are enough for that to equal one rounding.
    c.template st<W>(i, x.zip(y, [](Val<T> u, Val<T> v) { return to<T>(to<f32>(u) + to<f32>(v)); }));
  });
}

}  // namespace

std::span<const Variant> vecadd_variants() {
  // Pairs for f32, f16, bf16: 16 bytes an access, one element an access.
  static const std::vector<Variant> v{
      variant("vecadd_f32_v4", 75, vecadd_kernel<f32, 4>),
      variant("vecadd_f32", 75, vecadd_kernel<f32, 1>),
      variant("vecadd_f16_v8", 75, vecadd_kernel<f16, 8>),
      variant("vecadd_f16", 75, vecadd_kernel<f16, 1>),
      variant("vecadd_bf16_v8", 80, vecadd_kernel<bf16, 8>),
      variant("vecadd_bf16", 80, vecadd_kernel<bf16, 1>),
  };
  return v;
}

namespace {

int type_index(DType t) { return t == DType::f32 ? 0 : t == DType::f16 ? 1 : 2; }

template <class T>
void launch(runtime::Stream& s, const Variant& v, std::uint64_t threads, const runtime::Slice<const T>& a,
            const runtime::Slice<const T>& b, const runtime::Slice<T>& c) {
  // Enough blocks to fill the device several times over; grid-stride does the rest of a huge array.
  const auto grid =
      runtime::grid_for_at_most(threads, kThreads, std::uint64_t(s.device().info().sm_count) * 64);
  load(s.device(), v)(s, grid, a, b, c, std::uint64_t(c.size()));
}

}  // namespace

template <class T>
void vecadd(runtime::Stream& s, const runtime::Slice<const T>& a, const runtime::Slice<const T>& b,
            const runtime::Slice<T>& c) {
  if (a.size() != c.size() || b.size() != c.size())
    throw ArgumentError({"vecadd: a, b and c must have the same length",
                         {},
                         text::cat("a has ", a.size(), ", b ", b.size(), ", c ", c.size(), " elements"),
                         {}});
  const std::uint64_t n = c.size(), w = 16 / sizeof(T);
  if (n == 0) return;
  const Variant* pair = &vecadd_variants()[std::size_t(2 * type_index(dtype_of<T>))];
  const bool aligned = (a.address() | b.address() | c.address()) % 16 == 0;
  const std::uint64_t body = aligned ? n / w * w : 0;  // elements that go 16 bytes at a time
  if (body) launch(s, pair[0], body / w, a.slice(0, body), b.slice(0, body), c.slice(0, body));
  if (body < n)
    launch(s, pair[1], n - body, a.slice(body, n - body), b.slice(body, n - body), c.slice(body, n - body));
}
template void vecadd(runtime::Stream&, const runtime::Slice<const float>&, const runtime::Slice<const float>&,
                     const runtime::Slice<float>&);
template void vecadd(runtime::Stream&, const runtime::Slice<const half>&, const runtime::Slice<const half>&,
                     const runtime::Slice<half>&);
template void vecadd(runtime::Stream&, const runtime::Slice<const bfloat16>&,
                     const runtime::Slice<const bfloat16>&, const runtime::Slice<bfloat16>&);

namespace {

template <class T>
class VecaddCase : public Case {
 public:
  VecaddCase(const runtime::Device& d, HostArray a, HostArray b)
      : host_a_(std::move(a)),
        host_b_(std::move(b)),
        a_(d.alloc<T>(host_a_.size(), "a")),
        b_(d.alloc<T>(host_a_.size(), "b")),
        c_(d.alloc<T>(host_a_.size(), "c")) {
    a_.upload(typed<T>(host_a_));
    b_.upload(typed<T>(host_b_));
    const std::uint64_t n = host_a_.size(), w = 16 / sizeof(T);
    const Variant* pair = &vecadd_variants()[std::size_t(2 * type_index(dtype_of<T>))];
    if (n >= w || n == 0) images.push_back(image(pair[0], d.info().arch));
    if (n % w) images.push_back(image(pair[1], d.info().arch));
    variant = images[0].name;
    why = n % w ? text::cat("16-byte accesses, and a second launch for the last ", n % w, " elements")
                : "the slices are aligned: 16-byte accesses";
    flops = double(n);
    bytes = 3.0 * double(n) * sizeof(T);
  }
  void launch(runtime::Stream& s) override { vecadd<T>(s, a_, b_, c_); }
  std::vector<NamedArray> outputs() override {
    HostArray c(host_a_.dtype, host_a_.shape);
    c_.download(typed<T>(c));
    return {{"c", std::move(c)}};
  }
  Check verify() override {
    const auto want = vecadd_ref(host_a_, host_b_);
    return compare(outputs()[0].array, want,
                   [&](std::uint64_t i) { return vecadd_tolerance(host_a_.dtype, want[i]); });
  }

 private:
  HostArray host_a_, host_b_;
  runtime::Buffer<T> a_, b_, c_;
};

}  // namespace

KernelEntry vecadd_entry() {
  KernelEntry e;
  e.name = "vecadd";
  e.summary = "c[i] = a[i] + b[i]";
  e.options = {{"dtype", "f32", "f32, f16 or bf16"}, {"n", "1048576", "elements"}};
  e.inputs = {"a", "b"};
  e.images = [](std::string_view arch) { return images(vecadd_variants(), arch); };
  e.prepare = [](const runtime::Device& d, const Options& o, const std::vector<NamedArray>& given,
                 std::uint64_t seed) -> std::unique_ptr<Case> {
    const DType legal[] = {DType::f32, DType::f16, DType::bf16};
    const HostArray* first = find_input(given, "a") ? find_input(given, "a") : find_input(given, "b");
    const DType t = first ? first->dtype : o.dtype("dtype", legal);
    const auto shape = first ? first->shape : std::vector<std::uint64_t>{o.size("n")};
    if (first) o.agree(find_input(given, "a") ? "a" : "b", *first, {{"n", first->size()}});
    auto a = input_or_random(given, "a", t, shape, seed), b = input_or_random(given, "b", t, shape, seed + 1);
    switch (t) {
      case DType::f32:
        return std::make_unique<VecaddCase<float>>(d, std::move(a), std::move(b));
      case DType::f16:
        return std::make_unique<VecaddCase<half>>(d, std::move(a), std::move(b));
      case DType::bf16:
        return std::make_unique<VecaddCase<bfloat16>>(d, std::move(a), std::move(b));
      default:
        throw Unsupported(text::cat("vecadd adds f32, f16 and bf16; the input is ", cgp::name(t)));
    }
  };
  return e;
}

}  // namespace cgp::kernels
