// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include "cgp/base/text.h"
#include "cgp/emu/finding_class.h"
#include "cgp/spec/report/report.h"

namespace cgp::spec {
namespace {

using nlohmann::ordered_json;

template <class D>
ordered_json dim(const D& d) {
  return ordered_json::array({d.x, d.y, d.z});
}

ordered_json buffer_json(const BufferOutcome& b) {
  ordered_json j = {{"name", b.name},
                    {"dtype", name(b.dtype)},
                    {"count", b.count},
                    {"role", name(b.role)},
                    {"compared", b.compared}};
  if (b.compared) {
    const Comparison& c = b.comparison;
    j["mode"] = name(b.how.mode);
    j["equal"] = c.equal;
    j["wrong"] = c.wrong;
    j["max_abs_error"] = c.max_abs;
    j["max_rel_error"] = c.max_rel;
    if (c.wrong) {
      j["first"] = {{"index", c.first}, {"got", c.first_got}, {"want", c.first_want}};
      j["worst"] = {{"index", c.worst}, {"got", c.worst_got}, {"want", c.worst_want}};
    }
  }
  if (!b.saved.empty()) j["saved"] = b.saved;
  return j;
}

ordered_json launch_json(const LaunchOutcome& l) {
  ordered_json j = {{"entry", l.spec.entry},
                    {"grid", dim(l.spec.grid)},
                    {"block", dim(l.spec.block)},
                    {"cluster", dim(l.spec.cluster)},
                    {"dynamic_smem_bytes", l.spec.dynamic_smem}};
  j["gpu_ms"] = l.milliseconds ? ordered_json(*l.milliseconds) : ordered_json();
  if (l.emulated) {
    j["emulation_s"] = l.emulated->seconds;
    j["counters"] = to_json(l.emulated->counters);
    j["output"] = l.emulated->output;
  } else {
    j["output"] = l.printed;
  }
  return j;
}

}  // namespace

ordered_json to_json(const LocatedFinding& located) {
  const emu::Finding& f = located.finding;
  ordered_json j = {{"launch", located.launch},
                    {"class", f.cls},
                    {"severity", emu::name(f.severity)},
                    {"message", f.message},
                    {"kernel", located.kernel},
                    {"access", f.access},
                    {"instruction", f.instruction},
                    {"ptx", located.module},
                    {"ptx_line", f.ptx_line},
                    {"file", f.file},
                    {"line", f.line},
                    {"column", f.column},
                    {"block", dim(f.block)},
                    {"thread", dim(f.thread)},
                    {"address", f.address},
                    {"buffer", f.buffer},
                    {"byte_offset", f.byte_offset},
                    {"missing_edge", f.missing_edge},
                    {"hint", f.hint},
                    {"count", f.count},
                    {"instructions", f.instructions}};
  if (f.hint.empty())
    if (const auto* c = emu::find_class(f.cls)) j["hint"] = c->hint;
  if (f.other)
    j["other"] = {{"access", f.other->access},     {"instruction", f.other->instruction},
                  {"ptx_line", f.other->ptx_line}, {"file", f.other->file},
                  {"line", f.other->line},         {"column", f.other->column},
                  {"block", dim(f.other->block)},  {"thread", dim(f.other->thread)}};
  if (f.device) j["device"] = *f.device;
  if (f.other && f.other->device) j["other"]["device"] = *f.other->device;
  if (!located.policies.empty()) j["policies"] = located.policies;
  return j;
}

ordered_json to_json(const std::vector<LocatedFinding>& all) {
  ordered_json j = ordered_json::array();
  for (const auto& f : all) j.push_back(to_json(f));
  return j;
}

ordered_json to_json(const std::vector<PolicyOutcome>& all) {
  ordered_json j = ordered_json::array();
  for (const auto& o : all)
    j.push_back({{"policy", o.policy},
                 {"agrees", o.agrees},
                 {"findings", o.findings},
                 {"fault", o.fault.empty() ? ordered_json() : ordered_json(o.fault)}});
  return j;
}

ordered_json to_json(const emu::Counters& c) {
  ordered_json j;
  for (const auto& [key, value] : emu::flatten(c)) j[key] = value;
  j["simt_efficiency"] = c.simt_efficiency;
  j["by_family"] = ordered_json(c.by_family);
  j["by_opcode"] = ordered_json(c.by_opcode);
  return j;
}

ordered_json to_json(const runtime::DeviceInfo& d) {
  return {{"spec", d.spec},
          {"name", d.name},
          {"kind", runtime::name(d.kind)},
          {"arch", d.arch},
          {"sm_count", d.sm_count}};
}

ordered_json to_json(const Error& e, std::string_view kind) {
  return {{"kind", kind}, {"rule", e.rule()}, {"where", e.where()}, {"why", e.why()}, {"hint", e.hint()}};
}

ordered_json to_json(const SpecResult& r) {
  ordered_json j = {{"schema", "cgp.run/1"},      {"verdict", r.clean() ? "pass" : "fail"},
                    {"exit_code", r.exit_code()}, {"spec", r.spec_path},
                    {"ptx", r.ptx_path},          {"device", to_json(r.device)},
                    {"checks", r.checks},         {"emulation", r.emulation}};
  j["launches"] = ordered_json::array();
  for (const auto& l : r.launches) j["launches"].push_back(launch_json(l));
  j["buffers"] = ordered_json::array();
  for (const auto& b : r.buffers) j["buffers"].push_back(buffer_json(b));
  j["findings"] = to_json(r.findings);
  if (!r.policies.empty()) j["policies"] = to_json(r.policies);
  j["counter_mismatches"] = ordered_json::array();
  for (const auto& m : r.counter_mismatches)
    j["counter_mismatches"].push_back({{"launch", m.launch},
                                       {"name", m.name},
                                       {"want", m.want},
                                       {"got", m.got ? ordered_json(*m.got) : ordered_json()}});
  j["fault"] = r.fault.empty() ? ordered_json() : ordered_json(r.fault);
  if (r.expect) {
    j["expect"] = {{"class", r.expect->cls}, {"also", r.expect->also}, {"met", r.expectation_met()}};
  }
  j["warnings"] = r.warnings;
  return j;
}

}  // namespace cgp::spec
