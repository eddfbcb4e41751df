// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/build.h"

#include "cgp/ptx/print.h"

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

std::vector<BuiltKernel> ModuleBuilder::finish() {
  module_->version = {8, module_->target.find("sm_1") == 0 ? 8 : 7};
  return std::move(built_);
}

}  // namespace cgp::dsl
