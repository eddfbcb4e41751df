// SPDX-License-Identifier: Apache-2.0
// grouped_gemm, form problems, as a case that tools and tests drive: items are parts of three large matrices.
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm_ref.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm_case.h"

namespace cgp::kernels {
namespace {

// Offsets in elements from the large matrices' first.
struct Placed {
  GroupedItem item;  ///< addresses not filled in
  std::uint64_t a = 0, b = 0, c = 0;
};

// Item g has the rows of group g, and a few columns and a little length less than the largest. `misaligned`:
// every third one begins one element later.
std::vector<Placed> place_items(const GroupedProblem& p, const std::vector<std::uint64_t>& ends,
                                bool misaligned, bool equal) {
  std::vector<Placed> out;
  const auto less = [](std::uint64_t n, std::uint64_t by) { return n > by ? n - by : n; };
  for (std::uint64_t g = 0; g < p.groups; ++g) {
    const std::uint64_t from = g ? ends[g - 1] : 0;
    Placed q;
    q.item.m = std::uint32_t(equal ? p.rows / p.groups : ends[g] - from);
    q.item.n = std::uint32_t(equal ? p.n : less(p.n, g % 4 * 8));
    q.item.k = std::uint32_t(equal ? p.k : less(p.k, g % 3 * 8));
    q.item.lda = std::uint32_t(p.k), q.item.ldb = std::uint32_t(p.trans_b ? p.k : p.n);
    q.item.ldc = std::uint32_t(p.n);
    q.a = (equal ? g * q.item.m : from) * p.k, q.b = g * p.n * p.k, q.c = (equal ? g * q.item.m : from) * p.n;
    if (misaligned && g % 3 == 1 && q.item.k > 1) q.a += 1, q.item.k -= 1;
    if (misaligned && g % 3 == 2) q.item.k = 0;
    out.push_back(q);
  }
  return out;
}

class ProblemsCase : public Case {
 public:
  ProblemsCase(const runtime::Device& d, const GroupedProblem& p, std::vector<Placed> items,
               bool from_pointers, const std::string& kind, HostArray a, HostArray b, HostArray c)
      : p_(p),
        items_(std::move(items)),
        from_pointers_(from_pointers),
        host_a_(std::move(a)),
        host_b_(std::move(b)),
        host_c_(std::move(c)),
        a_(d.alloc<std::byte>(host_a_.bytes.size(), "a")),
        b_(d.alloc<std::byte>(host_b_.bytes.size(), "b")),
        c_(d.alloc<std::byte>(host_c_.bytes.size(), "c")),
        on_device_(d.alloc<std::byte>(items_.size() * sizeof(GroupedItem), "items")),
        pointers_(d.alloc<std::uint64_t>(items_.size() * 3, "pointers")) {
    if (auto wrong = reject(p); !wrong.empty()) throw ArgumentError(text::cat("grouped_gemm: ", wrong));
    a_.upload(host_a_.bytes), b_.upload(host_b_.bytes), c_.upload(host_c_.bytes);
    const std::uint64_t e = std::uint64_t(cgp::bytes(p.type)), n = items_.size();
    std::vector<std::byte> raw(on_device_.size());
    std::vector<std::uint64_t> pointers(3 * n);
    for (std::size_t g = 0; g < n; ++g) {
      auto& i = items_[g].item;
      pointers[g] = i.a = a_.address() + items_[g].a * e;
      pointers[n + g] = i.b = b_.address() + items_[g].b * e;
      pointers[2 * n + g] = i.c = c_.address() + items_[g].c * e;
      std::memcpy(raw.data() + g * sizeof i, &i, sizeof i);
    }
    if (!from_pointers_) on_device_.upload(raw);
    pointers_.upload(pointers);
    choice_ = choose_grouped(kind, p_, addresses(), d.info());
    variant = choice_.variant.name, why = choice_.why;
    images = {image(choice_.variant, d.info().arch)};
    for (const auto& q : items_) flops += 2.0 * q.item.m * q.item.n * q.item.k;
    bytes = double(host_a_.bytes.size() + host_b_.bytes.size() + host_c_.bytes.size());
  }
  void launch(runtime::Stream& s) override {
    const std::uint64_t n = items_.size(), at = pointers_.address();
    if (from_pointers_)
      run_grouped_items(s, on_device_.address(), n, at, at + 8 * n, at + 16 * n, items_.at(0).item);
    run_grouped_gemm(s, choice_, p_, addresses());
  }
  std::vector<NamedArray> outputs() override {
    HostArray c(host_c_.dtype, host_c_.shape);
    c_.download(c.bytes);
    return {{"c", std::move(c)}};
  }
  Check verify() override {
    auto want = host_c_.as_doubles();
    std::vector<double> tolerance(want.size());
    for (const auto& q : items_)
      for (std::uint64_t i = 0; i < q.item.m; ++i)
        for (std::uint64_t j = 0; j < q.item.n; ++j) {
          double sum = 0, magnitude = 0;
          for (std::uint64_t l = 0; l < q.item.k; ++l) {
            const double x = host_a_.at(q.a + i * q.item.lda + l) *
                             host_b_.at(q.b + (p_.trans_b ? j * q.item.ldb + l : l * q.item.ldb + j));
            sum += x, magnitude += std::fabs(x);
          }
          const std::uint64_t at = q.c + i * q.item.ldc + j;
          want[at] = double(p_.alpha) * sum;
          tolerance[at] =
              gemm_tolerance(p_.type, q.item.k, std::fabs(double(p_.alpha)) * magnitude, want[at]);
        }
    return compare(outputs()[0].array, want, [&](std::uint64_t i) { return tolerance[i]; });
  }

 private:
  GroupedAddresses addresses() const { return {0, 0, 0, 0, 0, on_device_.address()}; }
  GroupedProblem p_;
  std::vector<Placed> items_;
  bool from_pointers_;
  HostArray host_a_, host_b_, host_c_;
  runtime::Buffer<std::byte> a_, b_, c_, on_device_;
  runtime::Buffer<std::uint64_t> pointers_;
  GroupedChoice choice_;
};

}  // namespace

std::unique_ptr<Case> prepare_problems(const runtime::Device& d, const GroupedProblem& p,
                                       const std::vector<std::uint64_t>& ends, const GroupedCaseOptions& o,
                                       const std::vector<NamedArray>& given, std::uint64_t seed) {
  using Shape = std::vector<std::uint64_t>;
  const Shape b = p.trans_b ? Shape{p.groups, p.n, p.k} : Shape{p.groups, p.k, p.n};
  return std::make_unique<ProblemsCase>(d, p, place_items(p, ends, o.misaligned, o.pointers), o.pointers,
                                        o.kind, input_or_random(given, "a", p.type, Shape{p.rows, p.k}, seed),
                                        input_or_random(given, "b", p.type, b, seed + 1),
                                        random_array(p.type, Shape{p.rows, p.n}, seed + 2));
}

}  // namespace cgp::kernels
