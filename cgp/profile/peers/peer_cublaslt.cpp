// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/peers/peer_cublaslt.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/compare.h"
#include "cgp/profile/peers/peer_cublaslt_abi.h"

namespace cgp::measure {
namespace {

lt::DataType data_type(DType t) {
  switch (t) {
    case DType::f16:
      return lt::DataType::r_16f;
    case DType::bf16:
      return lt::DataType::r_16bf;
    case DType::f32:
      return lt::DataType::r_32f;
    case DType::e4m3:
      return lt::DataType::r_8f_e4m3;
    case DType::e5m2:
      return lt::DataType::r_8f_e5m2;
    case DType::s8:
      return lt::DataType::r_8i;
    case DType::s32:
      return lt::DataType::r_32i;
    default:
      throw Unsupported(text::cat("cuBLASLt has no products of ", name(t)));
  }
}
bool is_fp8(DType t) { return t == DType::e4m3 || t == DType::e5m2; }
bool has_bias(LtEpilogue e) { return e >= LtEpilogue::bias; }
void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

CublasLtGemm dense(CublasLtGemm g) {
  if (!g.lda) g.lda = g.trans_a ? g.m : g.k;
  if (!g.ldb) g.ldb = g.trans_b ? g.k : g.n;
  if (!g.ldc) g.ldc = g.n;
  if (!g.stride_a) g.stride_a = g.lda * (g.trans_a ? g.k : g.m);
  if (!g.stride_b) g.stride_b = g.ldb * (g.trans_b ? g.n : g.k);
  if (!g.stride_c) g.stride_c = g.ldc * g.m;
  return g;
}

}  // namespace

std::string reject(const CublasLtGemm& g) {
  if (g.m < 1 || g.n < 1 || g.k < 1 || g.batch < 1) return "cuBLASLt takes no empty products";
  if (is_fp8(g.a) != is_fp8(g.b)) return "cuBLASLt multiplies fp8 with fp8 only";
  if (is_fp8(g.a) && (g.trans_a || !g.trans_b))
    return "cuBLASLt multiplies fp8 with K contiguous in both operands only (layout nt)";
  if (g.a == DType::e5m2 && g.b == DType::e5m2) return "cuBLASLt has no product of e5m2 with e5m2";
  if (g.scale != LtScale::none && !is_fp8(g.a)) return "cuBLASLt scales fp8 operands only";
  if (g.tf32 && g.a != DType::f32) return "tf32 is a way to multiply f32";
  if ((g.a == DType::s8) != (g.c == DType::s32)) return "s8 operands go with s32 results";
  return {};
}

struct CublasLt::Impl {
  runtime::Device device;
  runtime::Buffer<std::uint8_t> workspace;
  void* library = nullptr;
  void* handle = nullptr;
  int (*create)(void**) = nullptr;
  int (*destroy)(void*) = nullptr;
  std::size_t (*get_version)() = nullptr;
  int (*desc_create)(void**, lt::ComputeType, lt::DataType) = nullptr;
  int (*desc_destroy)(void*) = nullptr;
  int (*desc_set)(void*, lt::MatmulDesc, const void*, std::size_t) = nullptr;
  int (*layout_create)(void**, lt::DataType, std::uint64_t, std::uint64_t, std::int64_t) = nullptr;
  int (*layout_destroy)(void*) = nullptr;
  int (*layout_set)(void*, lt::Layout, const void*, std::size_t) = nullptr;
  int (*preference_create)(void**) = nullptr;
  int (*preference_destroy)(void*) = nullptr;
  int (*preference_set)(void*, lt::Preference, const void*, std::size_t) = nullptr;
  int (*get_heuristic)(void*, void*, void*, void*, void*, void*, void*, int, lt::HeuristicResult*,
                       int*) = nullptr;
  int (*config_get)(const lt::Algo*, lt::AlgoConfig, void*, std::size_t, std::size_t*) = nullptr;
  int (*matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*,
                void*, void*, void*, const lt::Algo*, void*, std::size_t, void*) = nullptr;

  Impl(const runtime::Device& d, std::uint64_t bytes) : device(d), workspace(d, bytes) {}
  ~Impl() {
    if (handle) destroy(handle);
  }
  template <class F>
  void bind(F& f, const char* symbol) {
    f = reinterpret_cast<F>(dlsym(library, symbol));
    if (!f) throw Unsupported(text::cat("libcublasLt has no ", symbol));
  }
  void load();
  std::string text_of(const lt::Algo& a) const;
};

namespace {
void check(int status, const char* call) {
  if (status == 0) return;
  const ErrorText why{"cuBLASLt refused a call",
                      call,
                      text::cat("status ", status,
                                status == 15  ? " (not supported)"
                                : status == 7 ? " (invalid value)"
                                              : ""),
                      {}};
  if (status == 15) throw Unsupported(why);
  throw Error(why);
}
}  // namespace

void CublasLt::Impl::load() {
  std::vector<std::string> names{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                                 "/usr/local/cuda/lib64/libcublasLt.so"};
  if (const char* path = std::getenv("CGP_CUBLASLT_LIB")) names = {path};
  for (const auto& n : names)
    if ((library = dlopen(n.c_str(), RTLD_NOW | RTLD_LOCAL))) break;
  if (!library)
    throw Unsupported({"cuBLASLt is not installed, so it cannot be measured",
                       {},
                       dlerror(),
                       "set CGP_CUBLASLT_LIB to libcublasLt.so"});
  bind(create, "cublasLtCreate");
  bind(destroy, "cublasLtDestroy");
  bind(get_version, "cublasLtGetVersion");
  bind(desc_create, "cublasLtMatmulDescCreate");
  bind(desc_destroy, "cublasLtMatmulDescDestroy");
  bind(desc_set, "cublasLtMatmulDescSetAttribute");
  bind(layout_create, "cublasLtMatrixLayoutCreate");
  bind(layout_destroy, "cublasLtMatrixLayoutDestroy");
  bind(layout_set, "cublasLtMatrixLayoutSetAttribute");
  bind(preference_create, "cublasLtMatmulPreferenceCreate");
  bind(preference_destroy, "cublasLtMatmulPreferenceDestroy");
  bind(preference_set, "cublasLtMatmulPreferenceSetAttribute");
  bind(get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  bind(config_get, "cublasLtMatmulAlgoConfigGetAttribute");
  bind(matmul, "cublasLtMatmul");
  (void)device.stream().native_handle();  // cuBLASLt takes the current context
  if (const int status = create(&handle))
    throw Unsupported({"cuBLASLt does not start here, so it cannot be measured", "cublasLtCreate",
                       text::cat("status ", status), "its version must fit the driver's"});
}

std::string CublasLt::Impl::text_of(const lt::Algo& a) const {
  const auto get = [&](lt::AlgoConfig what) {
    std::int32_t v = 0;
    std::size_t written = 0;
    const std::size_t size = what == lt::AlgoConfig::cluster_shape_id ? 2 : 4;
    return config_get(&a, what, &v, size, &written) == 0 ? v : -1;
  };
  using C = lt::AlgoConfig;
  return text::cat("algo ", get(C::id), " tile ", get(C::tile_id), " stages ", get(C::stages_id), " split ",
                   get(C::splitk_num), " cluster ", get(C::cluster_shape_id));
}

// Column-major is what the library thinks in: the row-major product is C' = op(B)' op(A)', m and n exchanged.
// So its A is our B, and its bias per row of C' is ours per column.
struct CublasLtPlan::Impl {
  std::shared_ptr<const CublasLt::Impl> peer;
  CublasLtGemm problem;
  void *desc = nullptr, *a = nullptr, *b = nullptr, *c = nullptr;
  lt::Algo algo{};

  explicit Impl(std::shared_ptr<const CublasLt::Impl> l, const CublasLtGemm& g)
      : peer(std::move(l)), problem(dense(g)) {
    const auto& p = problem;
    const bool integer = p.a == DType::s8;
    check(peer->desc_create(&desc,
                            integer  ? lt::ComputeType::i32
                            : p.tf32 ? lt::ComputeType::f32_fast_tf32
                                     : lt::ComputeType::f32,
                            integer ? lt::DataType::r_32i : lt::DataType::r_32f),
          "cublasLtMatmulDescCreate");
    set(lt::MatmulDesc::trans_a, p.trans_b ? lt::Operation::t : lt::Operation::n);
    set(lt::MatmulDesc::trans_b, p.trans_a ? lt::Operation::t : lt::Operation::n);
    constexpr lt::Epilogue epilogues[] = {lt::Epilogue::none,      lt::Epilogue::relu,
                                          lt::Epilogue::gelu,      lt::Epilogue::bias,
                                          lt::Epilogue::relu_bias, lt::Epilogue::gelu_bias};
    set(lt::MatmulDesc::epilogue, epilogues[int(p.epilogue)]);
    if (has_bias(p.epilogue)) set(lt::MatmulDesc::bias_data_type, data_type(p.c));
    if (is_fp8(p.a)) set(lt::MatmulDesc::fast_accum, std::int8_t(p.fast_accum));
    if (p.scale == LtScale::rows || p.scale == LtScale::blocks) {
      const bool rows = p.scale == LtScale::rows;
      set(lt::MatmulDesc::a_scale_mode, rows ? lt::ScaleMode::outer_vec_32f : lt::ScaleMode::blk128x128_32f);
      set(lt::MatmulDesc::b_scale_mode, rows ? lt::ScaleMode::outer_vec_32f : lt::ScaleMode::vec128_32f);
    }
    layout(a, p.b, p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.ldb, p.stride_b);
    layout(b, p.a, p.trans_a ? p.m : p.k, p.trans_a ? p.k : p.m, p.lda, p.stride_a);
    layout(c, p.c, p.n, p.m, p.ldc, p.stride_c);
  }
  ~Impl() {
    for (void* l : {a, b, c})
      if (l) peer->layout_destroy(l);
    if (desc) peer->desc_destroy(desc);
  }
  Impl(const Impl&) = delete;
  template <class V>
  void set(lt::MatmulDesc what, V v) const {
    check(peer->desc_set(desc, what, &v, sizeof v), "cublasLtMatmulDescSetAttribute");
  }
  void layout(void*& l, DType t, std::int64_t rows, std::int64_t cols, std::int64_t ld, std::int64_t stride) {
    check(peer->layout_create(&l, data_type(t), std::uint64_t(rows), std::uint64_t(cols), ld),
          "cublasLtMatrixLayoutCreate");
    if (problem.batch == 1) return;
    const auto count = std::int32_t(problem.batch);
    check(peer->layout_set(l, lt::Layout::batch_count, &count, sizeof count), "batch count");
    check(peer->layout_set(l, lt::Layout::strided_batch_offset, &stride, sizeof stride), "batch stride");
  }
  void point(const CublasLtOperands& at) const {
    if (has_bias(problem.epilogue)) set(lt::MatmulDesc::bias_pointer, pointer(at.bias));
    if (problem.scale != LtScale::none) {
      set(lt::MatmulDesc::a_scale_pointer, pointer(at.scale_b));
      set(lt::MatmulDesc::b_scale_pointer, pointer(at.scale_a));
    }
  }
  void run(void* stream, const CublasLtOperands& at) const {
    point(at);
    const auto alpha = std::int32_t(problem.alpha), beta = std::int32_t(problem.beta);
    const bool integer = problem.a == DType::s8;
    const void* scale = integer ? static_cast<const void*>(&alpha) : &problem.alpha;
    const void* keep = integer ? static_cast<const void*>(&beta) : &problem.beta;
    check(peer->matmul(peer->handle, desc, scale, pointer(at.b), a, pointer(at.a), b, keep, pointer(at.c), c,
                       pointer(at.c), c, &algo, pointer(peer->workspace.address()), peer->workspace.bytes(),
                       stream),
          "cublasLtMatmul");
  }
};

void CublasLtPlan::run(runtime::Stream& s, const CublasLtOperands& at) const {
  impl_->run(s.native_handle(), at);
}

CublasLt::CublasLt(const runtime::Device& device, std::uint64_t workspace_bytes) {
  if (device.is_emulator())
    throw Unsupported({"cuBLASLt runs on a GPU", {}, text::cat("the device is ", device.info().name), {}});
  impl_ = std::make_shared<Impl>(device, workspace_bytes);
  impl_->load();
}
CublasLt::~CublasLt() = default;
std::size_t CublasLt::version() const { return impl_->get_version(); }

std::vector<CublasLtPlan> CublasLt::heuristics(const CublasLtGemm& g, const CublasLtOperands& at,
                                               int most) const {
  if (auto why = reject(g); !why.empty()) throw Unsupported(why);
  CublasLtPlan::Impl asked(impl_, g);
  asked.point(at);
  const auto alignment = [](std::uint64_t address) {
    return std::uint32_t(std::min<std::uint64_t>(256, address & (~address + 1)));
  };
  std::vector<lt::HeuristicResult> results;
  // What is allowed to use less memory is proposed differently.
  for (const std::uint64_t workspace :
       {std::uint64_t(impl_->workspace.bytes()), std::uint64_t(4) << 20, std::uint64_t(0)}) {
    void* preference = nullptr;
    check(impl_->preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](lt::Preference what, auto v) {
      check(impl_->preference_set(preference, what, &v, sizeof v), "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(lt::Preference::max_workspace_bytes, workspace);
    prefer(lt::Preference::min_alignment_a_bytes, alignment(at.b));
    prefer(lt::Preference::min_alignment_b_bytes, alignment(at.a));
    prefer(lt::Preference::min_alignment_c_bytes, alignment(at.c));
    prefer(lt::Preference::min_alignment_d_bytes, alignment(at.c));
    std::vector<lt::HeuristicResult> some(std::size_t(most), lt::HeuristicResult{});
    int got = 0;
    const int status = impl_->get_heuristic(impl_->handle, asked.desc, asked.a, asked.b, asked.c, asked.c,
                                            preference, most, some.data(), &got);
    impl_->preference_destroy(preference);
    if (results.empty()) check(status, "cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; status == 0 && i < got; ++i) {
      const auto& r = some[std::size_t(i)];
      const bool known = std::any_of(results.begin(), results.end(), [&](const auto& have) {
        return std::memcmp(&have.algo, &r.algo, sizeof r.algo) == 0;
      });
      if (r.state == 0 && !known) results.push_back(r);
    }
    if (most == 1) break;
  }
  std::vector<CublasLtPlan> plans;
  for (const auto& r : results) {
    auto made = std::make_shared<CublasLtPlan::Impl>(impl_, g);
    made->algo = r.algo;
    CublasLtPlan plan;
    plan.impl_ = std::move(made);
    plan.text_ = impl_->text_of(r.algo);
    plans.push_back(std::move(plan));
  }
  if (plans.empty()) throw Unsupported("the heuristics of cuBLASLt propose no algorithm for this product");
  return plans;
}

CublasLtPlan CublasLt::search(const CublasLtGemm& g, const CublasLtOperands& at, int most) const {
  std::vector<CublasLtPlan> all;
  for (auto& plan : heuristics(g, at, most)) try {  // some proposals fail when they run
      plan.run(impl_->device.stream(), at);
      impl_->device.stream().wait();
      all.push_back(plan);
    } catch (const Error&) {
    }
  if (all.empty()) throw Unsupported("no algorithm that cuBLASLt proposes for this product runs");
  const auto time = [&](std::size_t leaders, int warmup, int rounds) {
    std::vector<Contender> contenders;
    for (std::size_t i = 0; i < leaders; ++i)
      contenders.push_back({all[i].text(), [&plan = all[i], &at](runtime::Stream& s) { plan.run(s, at); }});
    CompareOptions o;
    o.warmup = warmup, o.rounds = rounds;
    const auto timings = compare(impl_->device, contenders, o);
    for (std::size_t i = 0; i < leaders; ++i) all[i].milliseconds = timings[i].summary.median;
    return timings[0].summary.median;
  };
  const auto faster = [](const CublasLtPlan& x, const CublasLtPlan& y) {
    return x.milliseconds < y.milliseconds;
  };
  const bool large = g.flops() > 1e12;
  double first = time(all.size(), 0, large ? 1 : 3);
  std::stable_sort(all.begin() + 1, all.end(), faster);  // the first proposal stays: its time is reported
  const std::size_t leaders = std::min<std::size_t>(all.size(), large ? 4 : 7);
  first = time(leaders, large ? 0 : 1, large ? 5 : 15);
  CublasLtPlan best = *std::min_element(all.begin(), all.begin() + std::ptrdiff_t(leaders), faster);
  best.candidates = int(all.size());
  best.first_milliseconds = first;
  return best;
}

}  // namespace cgp::measure
