// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/sync/sync.h"

namespace cgp::dsl {
using ptx::Mod;
using ptx::Op;

void griddepcontrol_wait(Kernel& k, Here at) {
  k.needs_sm(90, "griddepcontrol", at);
  k.at(at);
  k.inst(Op::griddepcontrol, {Mod::wait}, {});
}
void griddepcontrol_launch_dependents(Kernel& k, Here at) {
  k.needs_sm(90, "griddepcontrol", at);
  k.at(at);
  k.inst(Op::griddepcontrol, {Mod::launch_dependents}, {});
}
void nanosleep(Kernel& k, const Val<u32>& nanoseconds, Here at) {
  k.at(at);
  k.effect(Op::nanosleep, {Mod::u32}, {nanoseconds});
}
void brkpt(Kernel& k, Here at) {
  k.at(at);
  k.inst(Op::brkpt, {}, {});
}
void pmevent(Kernel& k, int event, Here at) {
  if (event < 0 || event > 15)
    throw BuildError("a performance monitor event is 0 to 15", at, text::cat("got ", event));
  k.at(at);
  k.inst(Op::pmevent, {}, {ptx::Operand::integer(event)});
}

namespace record_impl {
ptx::Operand any_operand(Kernel&, int v) { return ptx::Operand::integer(v); }
}  // namespace record_impl

}  // namespace cgp::dsl
