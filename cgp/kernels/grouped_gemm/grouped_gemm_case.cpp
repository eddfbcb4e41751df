// SPDX-License-Identifier: Apache-2.0
// grouped_gemm as a case that tools and tests drive.
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm_case.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm_ref.h"

namespace cgp::kernels {

std::vector<std::uint64_t> ragged_ends(std::uint64_t groups, std::uint64_t rows, std::string_view spread,
                                       std::uint64_t seed) {
  std::vector<double> weight(groups, 1);
  SplitMix64 random(seed);
  for (std::uint64_t g = 0; g < groups; ++g) {
    if (spread == "even") continue;
    const double u = random.uniform();
    if (spread == "ragged") weight[g] = 0.2 + 1.6 * u;
    if (spread == "skewed") weight[g] = std::pow(u, 4);
    if (spread == "one") weight[g] = g == groups / 2;
    if (spread == "holes") weight[g] = u < 0.5 ? 0 : u;
  }
  double all = 0, sum = 0;
  for (double w : weight) all += w;
  std::vector<std::uint64_t> ends;
  for (double w : weight) {
    sum += w;
    ends.push_back(all > 0 ? std::min(rows, std::uint64_t(std::llround(double(rows) * (sum / all)))) : 0);
  }
  return ends;
}

GroupedChoice choose_grouped(const std::string& kind, const GroupedProblem& p, const GroupedAddresses& at,
                             const runtime::DeviceInfo& d) {
  auto selected = select_grouped_gemm(p, at, d);
  if (kind == "auto" || kind == name(selected.kind)) return selected;
  if (kind != "simt") {
    GroupedAddresses plain = at;
    plain.index = 0;
    const auto forced = kind == "sm80" ? GroupedKind::sm80 : GroupedKind::sm90;
    if (auto why = reject(forced, p, plain, d); !why.empty()) throw Unsupported(std::move(why));
    GroupedChoice c{GroupedKind::sm80, grouped_sm80(p.type, p.form, p.trans_b), "asked for"};
    c.gather = at.index != 0;
    return c;
  }
  return {GroupedKind::simt, grouped_simt(p.type, p.form, p.trans_b), "asked for", {}};
}

namespace {

constexpr std::string_view kForms[] = {"rows", "depth", "problems"};
constexpr std::string_view kSpreads[] = {"even", "ragged", "skewed", "one", "holes"};

class GroupedCase : public Case {
 public:
  GroupedCase(const runtime::Device& d, const GroupedProblem& p, std::vector<std::uint64_t> ends,
              std::vector<std::uint64_t> index, const std::string& kind, HostArray a, HostArray b,
              HostArray c)
      : p_(p),
        ends_(std::move(ends)),
        index_(std::move(index)),
        host_a_(std::move(a)),
        host_b_(std::move(b)),
        host_c_(std::move(c)),
        a_(d.alloc<std::byte>(host_a_.bytes.size(), "a")),
        b_(d.alloc<std::byte>(host_b_.bytes.size(), "b")),
        c_(d.alloc<std::byte>(host_c_.bytes.size(), "c")),
        ends_on_device_(d.alloc<std::byte>(ends_.size() * (p.wide_ends ? 8 : 4), "ends")),
        index_on_device_(d.alloc<std::uint32_t>(index_.size(), "index")) {
    if (auto wrong = reject(p); !wrong.empty()) throw ArgumentError(text::cat("grouped_gemm: ", wrong));
    a_.upload(host_a_.bytes), b_.upload(host_b_.bytes), c_.upload(host_c_.bytes);
    std::vector<std::byte> raw(ends_on_device_.size());
    for (std::size_t g = 0; g < ends_.size(); ++g) {
      const auto narrow = std::uint32_t(ends_[g]);
      if (p.wide_ends)
        std::memcpy(raw.data() + 8 * g, &ends_[g], 8);
      else
        std::memcpy(raw.data() + 4 * g, &narrow, 4);
    }
    ends_on_device_.upload(raw);
    index_on_device_.upload(std::vector<std::uint32_t>(index_.begin(), index_.end()));
    choice_ = choose_grouped(kind, p_, addresses(), d.info());
    variant = choice_.variant.name, why = choice_.why;
    images = {image(choice_.variant, d.info().arch)};
    flops = p_.flops();
    bytes = double(host_a_.bytes.size() + host_b_.bytes.size() + host_c_.bytes.size());
  }
  void launch(runtime::Stream& s) override { run_grouped_gemm(s, choice_, p_, addresses()); }
  std::vector<NamedArray> outputs() override {
    HostArray c(host_c_.dtype, host_c_.shape);
    c_.download(c.bytes);
    return {{"c", std::move(c)}};
  }
  Check verify() override {
    const auto oracle = grouped_ref(p_, ends_, index_, host_a_, host_b_, host_c_);
    return compare(outputs()[0].array, oracle.want, [&](std::uint64_t i) { return oracle.tolerance[i]; });
  }

 private:
  GroupedAddresses addresses() const {
    return {
        a_.address(), b_.address(), c_.address(), ends_on_device_.address(), index_on_device_.address(), 0};
  }
  GroupedProblem p_;
  std::vector<std::uint64_t> ends_, index_;
  HostArray host_a_, host_b_, host_c_;
  runtime::Buffer<std::byte> a_, b_, c_, ends_on_device_;
  runtime::Buffer<std::uint32_t> index_on_device_;
  GroupedChoice choice_;
};

std::unique_ptr<Case> prepare(const runtime::Device& d, const Options& o,
                              const std::vector<NamedArray>& given, std::uint64_t seed) {
  const DType legal[] = {DType::f32, DType::f16, DType::bf16};
  const std::string_view layouts[] = {"nn", "nt"}, kinds[] = {"auto", "simt", "sm80", "sm90"};
  GroupedProblem p;
  p.type = o.dtype("dtype", legal);
  const auto form = o.choice("form", kForms);
  p.form = form == "rows" ? GroupedForm::rows : form == "depth" ? GroupedForm::depth : GroupedForm::problems;
  p.trans_b = o.choice("layout", layouts) == "nt";
  p.groups = o.size("groups"), p.rows = o.size("rows"), p.n = o.size("n"), p.k = o.size("k"),
  p.m = o.size("m");
  p.wide_ends = o.flag("wide"), p.alpha = float(o.real("alpha"));
  std::vector<std::uint64_t> index;
  const bool depth = p.form == GroupedForm::depth;
  if (o.flag("gather") && !depth) {
    p.a_rows = p.rows / 2 + 1;  // tokens that several experts get
    SplitMix64 random(seed + 7);
    for (std::uint64_t r = 0; r < p.rows; ++r) index.push_back(random.next() % p.a_rows);
  }
  const auto ends = ragged_ends(p.groups, p.rows, o.choice("spread", kSpreads), seed);
  if (p.form == GroupedForm::problems)
    return prepare_problems(
        d, p, ends, {o.choice("variant", kinds), o.flag("misaligned"), o.flag("pointers")}, given, seed);
  using Shape = std::vector<std::uint64_t>;
  const Shape a = depth ? Shape{p.rows, p.m} : Shape{index.empty() ? p.rows : p.a_rows, p.k};
  const Shape b = depth       ? Shape{p.rows, p.n}
                  : p.trans_b ? Shape{p.groups, p.n, p.k}
                              : Shape{p.groups, p.k, p.n};
  const Shape c = depth ? Shape{p.groups, p.m, p.n} : Shape{p.rows, p.n};
  return std::make_unique<GroupedCase>(
      d, p, ends, index, o.choice("variant", kinds), input_or_random(given, "a", p.type, a, seed),
      input_or_random(given, "b", p.type, b, seed + 1), random_array(p.type, c, seed + 2));
}

}  // namespace

KernelEntry grouped_gemm_entry() {
  KernelEntry e;
  e.name = "grouped_gemm";
  e.summary = "products of ragged groups (experts), whose sizes lie on the device";
  e.options = {
      {"dtype", "bf16", "f32, f16 or bf16"},
      {"form", "rows",
       "rows: a group is rows of a and c; depth: the length of the sums; problems: items of their own"},
      {"layout", "nt", "of b, form rows: nn [groups, k, n] or nt [groups, n, k]"},
      {"groups", "8", "experts"},
      {"rows", "1024", "of all groups"},
      {"m", "256", "rows of each c, form depth"},
      {"n", "512", "columns of c"},
      {"k", "512", "length of the sums, form rows"},
      {"spread", "ragged", "of the rows over the groups: even, ragged, skewed, holes or one"},
      {"wide", "0", "the ends of the groups are 64-bit numbers"},
      {"gather", "0", "rows of a are named by an index, form rows"},
      {"misaligned", "0", "form problems: some items are not aligned, some have k = 0"},
      {"pointers", "0", "form problems: equal items, made from arrays of addresses"},
      {"alpha", "1", "scale of the products"},
      {"variant", "auto", "auto, simt, sm80 or sm90"}};
  e.inputs = {"a", "b"};
  e.images = [](std::string_view arch) {
    std::vector<Variant> all;
    for (DType t : {DType::f32, DType::f16, DType::bf16}) {
      for (bool tb : {false, true}) {
        all.push_back(grouped_simt(t, GroupedForm::rows, tb));
        all.push_back(grouped_simt(t, GroupedForm::problems, tb));
        if (t == DType::f32) continue;
        all.push_back(grouped_sm80(t, GroupedForm::rows, tb));
        auto of_items = grouped_problems_sm90(t, tb, {});
        all.push_back(std::move(of_items.maps)), all.push_back(std::move(of_items.products));
        for (int bn : {128, 256})
          if (bn == 256 || (t == DType::bf16 && tb))
            all.push_back(grouped_rows_sm90(t, tb, {bn, bn == 128 ? 6 : 4, 2, 8}));
      }
      all.push_back(grouped_simt(t, GroupedForm::depth, false));
      if (t == DType::f32) continue;
      all.push_back(grouped_sm80(t, GroupedForm::depth, false));
      for (int bn : {128, 256})
        if (bn == 256 || t == DType::bf16)
          all.push_back(grouped_depth_sm90(t, {bn, bn == 128 ? 6 : 4, 2, 8}));
    }
    all.push_back(grouped_items()), all.push_back(grouped_gather());
    return images(all, arch);
  };
  e.prepare = prepare;
  return e;
}

}  // namespace cgp::kernels
