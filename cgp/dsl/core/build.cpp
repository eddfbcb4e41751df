// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/core/build.h"

#include <mutex>

#include "cgp/dsl/passes.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/verify/verify.h"

namespace cgp::dsl {

std::string BuiltKernel::ptx() const { return ptx::print(*module); }

namespace record_impl {
Value pointer_param(Kernel& k, ptx::Mod type, bool reads, bool writes, std::string detail) {
  ParamInfo i;
  i.kind = ParamInfo::Kind::pointer;
  i.type = type;
  i.size = i.align = 8;
  i.reads = reads;
  i.writes = writes;
  i.detail = std::move(detail);
  const auto p = k.param(std::move(i), /*is_ptr=*/true);
  const Value generic_address = k.load_param(p, ptx::Mod::u64);
  return k.op(ptx::Op::cvta, {ptx::Mod::to, ptx::Mod::global, ptx::Mod::u64}, ptx::Mod::u64,
              {generic_address});
}
}  // namespace record_impl

ModuleBuilder::ModuleBuilder(std::string target) : module_(std::make_shared<ptx::Module>()) {
  module_->target = std::move(target);
}

void ModuleBuilder::close(Kernel& k) {
  k.finish();
  BuiltKernel b;
  b.name = k.name();
  b.target = k.target();
  b.module = module_;
  b.params = k.params();
  b.block = k.block_size();
  b.cluster = k.cluster_size();
  b.static_smem = k.static_smem();
  b.dynamic_smem = k.dynamic_smem();
  built_.push_back(std::move(b));
}

namespace {
struct Optimisation {
  std::mutex mutex;  // kernels may be built by several threads; the choice is made before
  ptx::PassOptions options;
  ptx::PassStatistics statistics;
};
Optimisation& optimisation() {
  static Optimisation o;
  return o;
}
}  // namespace

void set_passes(const ptx::PassOptions& options) {
  optimisation().options = options;
  optimisation().statistics = {};
}
const ptx::PassOptions& passes() { return optimisation().options; }
const ptx::PassStatistics& pass_statistics() { return optimisation().statistics; }

BuiltKernel optimised(BuiltKernel kernel, const ptx::PassOptions& options) {
  auto module = std::make_shared<ptx::Module>(*kernel.module);
  ptx::optimise(*module, options);
  kernel.module = std::move(module);
  return kernel;
}

std::vector<BuiltKernel> ModuleBuilder::finish() {
  if (passes().any()) {
    const auto statistics = ptx::optimise(*module_, passes());
    const std::lock_guard lock(optimisation().mutex);
    optimisation().statistics.add(statistics);
  }
  const auto problems = ptx::settle_version(*module_);
  if (!problems.empty()) {
    const ptx::Problem& p = problems[0];
    std::string where = module_->target;
    if (p.loc != ptx::kNone)
      for (const auto& [number, path] : module_->files)
        if (number == module_->locs[p.loc].file) where = text::cat(path, ":", module_->locs[p.loc].line);
    throw BuildError({text::cat(p.rule, ": ", p.instruction), where, p.why, p.hint});
  }
  return std::move(built_);
}

}  // namespace cgp::dsl
