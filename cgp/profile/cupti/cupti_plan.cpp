// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/cupti/cupti_plan.h"

#include <algorithm>
#include <cstdint>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/cupti/cupti_load.h"

#if !defined(__has_feature)
#define __has_feature(x) 0
#endif

namespace cgp::measure {
namespace {

using namespace cupti;

/// libcupti opens libnvperf_host with RTLD_DEEPBIND, for which AddressSanitizer ends the program.
const char* refused() {
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
  return "this build has AddressSanitizer, which does not let libcupti load its parts (RTLD_DEEPBIND)";
#else
  return "";
#endif
}

struct Library {
  Functions f;
  std::string why;
  Library() : why(refused()) {
    if (why.empty()) why = load(f);
    if (why.empty() && (!f.cuptiProfilerHostInitialize || !f.cuptiProfilerHostGetSupportedChips))
      why = "it is older than 12.6 and has no profiler host interface";
  }
};
const Library& library() {
  static const Library l;
  return l;
}
const Functions& functions() {
  if (!library().why.empty())
    throw Unsupported({"planning counters needs libcupti",
                       {},
                       library().why,
                       "install the CUDA toolkit or the package nvidia-cuda-cupti, or set CGP_CUPTI"});
  return library().f;
}

class Host {
 public:
  explicit Host(const std::string& chip) {
    auto p = CGP_CUPTI_PARAMS(HostInitialize, host);
    p.chip = chip.c_str();
    if (int code = functions().cuptiProfilerHostInitialize(&p)) {
      const auto all = counter_chips();
      throw Unsupported({text::cat("libcupti has no counters for the chip ", chip),
                         {},
                         result_text(functions(), code),
                         text::cat("it knows ", text::join(all, " "))});
    }
    host_ = p.host;
  }
  ~Host() {
    auto p = CGP_CUPTI_PARAMS(HostObject, host);
    p.host = host_;
    functions().cuptiProfilerHostDeinitialize(&p);
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  CounterInfo info(const std::string& metric) const {
    auto p = CGP_CUPTI_PARAMS(HostProperties, type);
    p.host = host_, p.metric = metric.c_str();
    CounterInfo out;
    out.name = metric;
    out.exists = functions().cuptiProfilerHostGetMetricProperties(&p) == kSuccess;
    if (out.exists) out.unit = p.unit ? p.unit : "", out.description = p.description ? p.description : "";
    return out;
  }
  int passes(const std::vector<std::string>& metrics) const {
    std::vector<const char*> names;
    for (const auto& m : metrics) names.push_back(m.c_str());
    auto add = CGP_CUPTI_PARAMS(HostAddMetrics, count);
    add.host = host_, add.names = names.data(), add.count = names.size();
    check(functions().cuptiProfilerHostConfigAddMetrics(&add), "cuptiProfilerHostConfigAddMetrics");
    auto size = CGP_CUPTI_PARAMS(HostConfigImageSize, image_size);
    size.host = host_;
    check(functions().cuptiProfilerHostGetConfigImageSize(&size), "cuptiProfilerHostGetConfigImageSize");
    std::vector<std::uint8_t> bytes(size.image_size);
    auto image = CGP_CUPTI_PARAMS(HostConfigImage, image);
    image.host = host_, image.image_size = bytes.size(), image.image = bytes.data();
    check(functions().cuptiProfilerHostGetConfigImage(&image), "cuptiProfilerHostGetConfigImage");
    auto count = CGP_CUPTI_PARAMS(HostPasses, passes);
    count.image_size = bytes.size(), count.image = bytes.data();
    check(functions().cuptiProfilerHostGetNumOfPasses(&count), "cuptiProfilerHostGetNumOfPasses");
    return int(count.passes);
  }

 private:
  static void check(int code, const char* call) {
    if (code)
      throw Error({"the counters must fit one configuration", call, result_text(functions(), code), {}});
  }
  void* host_ = nullptr;
};

}  // namespace

std::vector<std::string> counter_chips() {
  auto p = CGP_CUPTI_PARAMS(HostChips, chips);
  if (int code = functions().cuptiProfilerHostGetSupportedChips(&p))
    throw Unsupported({"libcupti must name the chips it knows", {}, result_text(functions(), code), {}});
  return {p.chips, p.chips + p.count};
}

CounterPlan plan_counters(const std::string& chip, const std::vector<std::string>& metrics) {
  CounterPlan plan;
  plan.chip = chip;
  const Host host(chip);
  for (const auto& m : metrics) (host.info(m).exists ? plan.metrics : plan.missing).push_back(m);
  if (!plan.metrics.empty()) plan.passes = host.passes(plan.metrics);
  return plan;
}

CounterInfo counter_info(const std::string& chip, const std::string& metric) {
  return Host(chip).info(metric);
}

std::string describe_cupti(bool& there) {
  there = false;
  if (!library().why.empty()) return library().why;
  try {
    std::uint32_t version = 0;
    if (library().f.cuptiGetVersion) library().f.cuptiGetVersion(&version);
    const auto chips = counter_chips();
    there = true;
    return text::cat("version ", version, ", counters of ", chips.size(), " chips");
  } catch (const Error& e) {
    return e.what();
  }
}

std::vector<std::string> counters_of(CounterSet set) {
  std::vector<std::string> basic{"gpu__time_duration.sum",
                                 "sm__cycles_elapsed.max",
                                 "sm__cycles_active.avg",
                                 "sm__cycles_active.max",
                                 "sm__inst_executed.sum",
                                 "sm__warps_active.avg.pct_of_peak_sustained_active",
                                 "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
                                 "dram__bytes_read.sum",
                                 "dram__bytes_write.sum",
                                 "lts__t_bytes.sum",
                                 "l1tex__t_bytes.sum"};
  const auto with = [&](std::vector<std::string> more) {
    basic.insert(basic.end(), more.begin(), more.end());
    return basic;
  };
  const auto operation = [](const std::string& op) {
    return "smsp__sass_thread_inst_executed_op_" + op + "_pred_on.sum";
  };
  switch (set) {
    case CounterSet::basic:
      return basic;
    case CounterSet::roofline: {
      std::vector<std::string> ops;
      for (const char* op : {"fadd", "fmul", "ffma", "dadd", "dmul", "dfma", "hadd", "hmul", "hfma"})
        ops.push_back(operation(op));
      for (const char* type : {"bf16_dst_fp32", "fp16", "tf32_dst_fp32", "fp8", "int8", "fp64"})
        ops.push_back(std::string("sm__ops_path_tensor_src_") + type + ".sum");
      ops.emplace_back("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum");
      return with(ops);
    }
    case CounterSet::memory:
      return with({"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
                   "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
                   "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "l1tex__t_sector_hit_rate.pct",
                   "lts__t_sector_hit_rate.pct", "smsp__sass_inst_executed_op_local_ld.sum",
                   "smsp__sass_average_branch_targets_threads_uniform.pct",
                   "smsp__sass_branch_targets_threads_divergent.sum",
                   "smsp__average_thread_inst_executed_per_inst_executed.ratio",
                   "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
                   "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
                   "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
                   "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"});
    case CounterSet::stalls:
      break;
  }
  std::vector<std::string> stalls;
  for (const char* reason :
       {"barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle",
        "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction",
        "not_selected", "selected", "short_scoreboard", "sleeping", "tex_throttle", "wait"})
    stalls.push_back(std::string("smsp__warps_issue_stalled_") + reason + ".sum");
  stalls.emplace_back("smsp__issue_active.avg.pct_of_peak_sustained_active");
  stalls.emplace_back("smsp__issue_inst0.sum");
  return with(stalls);
}

std::string chip_of(const std::string& arch) {
  struct Row {
    const char *arch, *chip;
  };
  constexpr Row rows[] = {{"sm_70", "GV100"},   {"sm_75", "TU102"},  {"sm_80", "GA100"},  {"sm_86", "GA102"},
                          {"sm_89", "AD102"},   {"sm_90", "GH100"},  {"sm_90a", "GH100"}, {"sm_100", "GB100"},
                          {"sm_100a", "GB100"}, {"sm_120", "GB202"}, {"sm_120a", "GB202"}};
  for (const Row& r : rows)
    if (arch == r.arch) return r.chip;
  return {};
}

}  // namespace cgp::measure
