// SPDX-License-Identifier: Apache-2.0
// gemm_ladder on the host: the steps, their launches, and the case that tools and tests drive.
#include "cgp/kernels/gemm_ladder/gemm_ladder.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm_check.h"

namespace cgp::kernels {
namespace {

constexpr LadderStep kSteps[] = {
    {"warp", "wmma: a warp multiplies 16 x 16", 16, 16, 32, false},
    {"cta32", "four warps share the tiles they load", 32, 32, 128, false},
    {"cta64", "sixteen warps share them", 64, 64, 512, false},
    {"ahead", "loads one step ahead, into registers", 64, 64, 512, false},
    {"copies", "cp.async past the registers", 64, 64, 512, true},
    {"mma64", "mma.sync and ldmatrix, warps of 32 x 32", 64, 64, 128, true},
    {"swizzled", "no bank conflicts", 64, 64, 128, true},
    {"mma64x128", "a wider tile, warps of 32 x 64", 64, 128, 128, true},
    {"three_stages", "two copies in flight", 64, 128, 128, true},
    {"mma128", "warps of 64 x 64, four stages", 128, 128, 128, true},
    {"mma128x256", "eight warps of 64 x 64", 128, 256, 256, true},
    {"grouped", "blocks that run together share operands in L2", 128, 256, 256, true}};

bool by_wmma(const LadderStep& s) { return &s - kSteps < 5; }
Variant variant_of(const LadderStep& s) {
  return by_wmma(s) ? gemm_ladder_wmma(s.name) : gemm_ladder_mma(s.name);
}
std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

}  // namespace

std::span<const LadderStep> gemm_ladder() { return kSteps; }

std::string reject(const LadderStep& step, const LadderProblem& p, const runtime::DeviceInfo& d) {
  if (step.aligned && d.cc() < 80) return text::cat("cp.async needs sm_80 or later, this is ", d.arch);
  if (step.aligned && p.k % 8) return text::cat("k = ", p.k, ": rows are not multiples of 16 bytes apart");
  if (p.m > 0x7fffffffull || p.n > 0x7fffffffull || p.k > 0x7fffffffull) return "a size is 2^31 or more";
  return {};
}

void run_gemm_ladder(runtime::Stream& s, const LadderStep& step, const LadderProblem& p, std::uint64_t a,
                     std::uint64_t b, std::uint64_t c) {
  if (p.m == 0 || p.n == 0) return;
  if (auto why = reject(step, p, s.device().info()); !why.empty()) throw Unsupported(std::move(why));
  const auto fn = load(s.device(), variant_of(step));
  const auto at = [](std::uint64_t x) { return runtime::Arg::address(x); };
  const std::uint64_t tm = ceil_div(p.m, std::uint64_t(step.bm)), tn = ceil_div(p.n, std::uint64_t(step.bn));
  const auto grid = runtime::grid_for(tm * tn, 1);
  const auto m = std::uint32_t(p.m), n = std::uint32_t(p.n), k = std::uint32_t(p.k);
  if (by_wmma(step))
    fn(s, grid, at(a), at(b), at(c), m, n, k, std::uint32_t(tn));
  else
    fn(s, grid, at(a), at(b), at(c), m, n, k, std::uint32_t(tm), std::uint32_t(tn),
       std::uint32_t(p.n % 2 == 0 && c % 4 == 0), 1.f, 0.f);
}

namespace {

class LadderCase : public Case {
 public:
  LadderCase(const runtime::Device& d, const LadderStep& step, const LadderProblem& p, HostArray a,
             HostArray b)
      : step_(step),
        p_(p),
        host_a_(std::move(a)),
        host_b_(std::move(b)),
        a_(d.alloc<std::byte>(host_a_.bytes.size(), "a")),
        b_(d.alloc<std::byte>(host_b_.bytes.size(), "b")),
        c_(d.alloc<std::byte>(p.m * p.n * 2, "c")) {
    a_.upload(host_a_.bytes), b_.upload(host_b_.bytes);
    if (auto wrong = reject(step, p, d.info()); !wrong.empty()) throw Unsupported(std::move(wrong));
    const auto v = variant_of(step);
    variant = v.name, why = std::string(step.idea);
    images = {image(v, d.info().arch)};
    flops = 2.0 * double(p.m) * double(p.n) * double(p.k);
    bytes = double(host_a_.bytes.size() + host_b_.bytes.size() + c_.size());
  }
  void launch(runtime::Stream& s) override {
    run_gemm_ladder(s, step_, p_, a_.address(), b_.address(), c_.address());
  }
  std::vector<NamedArray> outputs() override {
    HostArray c(DType::f16, {p_.m, p_.n});
    c_.download(c.bytes);
    return {{"c", std::move(c)}};
  }
  Check verify() override {
    const GemmProblem p{.type = DType::f16, .trans_b = true, .m = p_.m, .n = p_.n, .k = p_.k};
    const HostArray got = outputs()[0].array;
    return check_gemm(p, host_a_, host_b_, got, got);
  }

 private:
  const LadderStep& step_;
  LadderProblem p_;
  HostArray host_a_, host_b_;
  runtime::Buffer<std::byte> a_, b_, c_;
};

}  // namespace

KernelEntry gemm_ladder_entry() {
  KernelEntry e;
  e.name = "gemm_ladder";
  e.summary = "a matrix product on mma.sync in steps, each one idea more than the one before";
  e.options = {{"m", "256", "rows of a and c"},
               {"n", "256", "rows of b, columns of c"},
               {"k", "256", "length of the sums"},
               {"step", "grouped",
                "warp, cta32, cta64, ahead, copies, mma64, swizzled, mma64x128, three_stages, "
                "mma128, mma128x256 or grouped"}};
  e.inputs = {"a", "b"};
  e.images = [](std::string_view arch) {
    std::vector<Variant> all;
    // Between these architectures the steps differ only in what the assembler does with them.
    const bool every = arch == "sm_75" || arch == "sm_80" || arch == "sm_90a";
    for (const auto& s : kSteps)
      if (every || s.name == "cta64" || s.name == "grouped") all.push_back(variant_of(s));
    return images(all, arch);
  };
  e.prepare = [](const runtime::Device& d, const Options& o, const std::vector<NamedArray>& given,
                 std::uint64_t seed) -> std::unique_ptr<Case> {
    std::vector<std::string_view> names;
    for (const auto& s : kSteps) names.push_back(s.name);
    const auto step = o.choice("step", names);
    const LadderProblem p{o.size("m"), o.size("n"), o.size("k")};
    for (const auto& s : kSteps)
      if (s.name == step)
        return std::make_unique<LadderCase>(d, s, p,
                                            input_or_random(given, "a", DType::f16, {p.m, p.k}, seed),
                                            input_or_random(given, "b", DType::f16, {p.n, p.k}, seed + 1));
    return nullptr;
  };
  return e;
}

}  // namespace cgp::kernels
