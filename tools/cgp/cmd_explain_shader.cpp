// SPDX-License-Identifier: Apache-2.0
// `cgp explain ... --as wgsl|spirv`: what a kernel becomes as a shader.
#include <map>
#include <nlohmann/json.hpp>

#include "cgp/base/text.h"
#include "cgp/ptx/parse.h"
#include "cgp/shader/shader.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using nlohmann::ordered_json;
using text::cat;

// What has no counterpart of its own in a shader.
struct Stands {
  std::string_view what, with, without;  ///< subgroups of 32 threads; none that are known
};
constexpr Stands kShuffle{"shuffles and votes", "subgroup operations",
                          "workgroup memory and two barriers each; statements around them run in lockstep"},
    kProduct{"products of mma.sync",
             "cooperative matrices (SPIR-V, where the device lays them out like registers), else shuffles",
             "workgroup memory and two barriers each"},
    kMatrices{"ldmatrix", "shuffles of addresses", "workgroup memory and two barriers each"},
    kCopies{"cp.async", "loads at once, stores before the next wait or barrier",
            "loads at once, stores before the next wait or barrier"},
    kAdditions{"atomic additions of f32", "loops of exchanges", "loops of exchanges"},
    kNarrow{"stores of 8 or 16 bits", "in WGSL and in workgroup memory two atomic operations on the word",
            "in WGSL and in workgroup memory two atomic operations on the word"};

const Stands* stands(const ptx::Inst& i) {
  switch (i.op) {
    case ptx::Op::shfl_sync:
    case ptx::Op::vote_sync:
    case ptx::Op::match_any_sync:
    case ptx::Op::redux_sync:
      return &kShuffle;
    case ptx::Op::mma:
      return &kProduct;
    case ptx::Op::ldmatrix:
      return &kMatrices;
    case ptx::Op::cp_async:
      return &kCopies;
    case ptx::Op::atom:
    case ptx::Op::red:
      return i.type() == ptx::Mod::f32 ? &kAdditions : nullptr;
    case ptx::Op::st:
      return ptx::type_bits(i.type()) < 32 && i.type() != ptx::Mod::pred ? &kNarrow : nullptr;
    default:
      return nullptr;
  }
}

std::uint64_t count(std::string_view all, std::string_view part) {
  std::uint64_t n = 0;
  for (auto at = all.find(part); at != std::string_view::npos; at = all.find(part, at + part.size())) ++n;
  return n;
}

// Of the text, or of the instructions.
ordered_json size_of(const shader::Shader& s) {
  if (!s.wgsl.empty())
    return {{"bytes", s.wgsl.size()},
            {"lines", count(s.wgsl, "\n")},
            {"barriers", count(s.wgsl, "workgroupBarrier()") + count(s.wgsl, "workgroupUniformLoad(")},
            {"loops", count(s.wgsl, "loop {")}};
  constexpr std::uint32_t kControlBarrier = 224, kLoopMerge = 246;
  std::uint64_t instructions = 0, barriers = 0, loops = 0;
  for (std::size_t at = 5; at < s.spirv.size(); at += s.spirv[at] >> 16) {
    const std::uint32_t op = s.spirv[at] & 0xffff;
    ++instructions, barriers += op == kControlBarrier, loops += op == kLoopMerge;
  }
  return {{"bytes", 4 * s.spirv.size()},
          {"instructions", instructions},
          {"barriers", barriers},
          {"loops", loops}};
}

ordered_json needs_of(const shader::Requirements& r) {
  ordered_json all = ordered_json::array();
  const auto add = [&](bool on, const char* what) {
    if (on) all.push_back(what);
  };
  add(r.subgroups, "subgroups of 32"), add(r.int64, "shaderInt64"),
      add(r.device_address, "bufferDeviceAddress"), add(r.storage16, "storageBuffer16BitAccess"),
      add(r.storage8, "storageBuffer8BitAccess");
  return all;
}

ordered_json explained(const ShaderSource& source, bool wgsl) {
  const ptx::Module m = ptx::parse(source.ptx);
  ordered_json j = {{"name", source.name}, {"entry", source.entry}};
  for (const bool subgroups : {true, false}) {
    shader::ShaderOptions o;
    o.block = source.block, o.dynamic_shared = source.dynamic_shared, o.subgroup_size = subgroups ? 32 : 0;
    const auto s =
        wgsl ? shader::translate_wgsl(m, source.entry, o) : shader::translate_spirv(m, source.entry, o);
    if (subgroups) {
      j["workgroup"] = s.block;
      j["block_bytes"] = s.block_bytes;
      j["parameters"] = ordered_json::array();
      for (const auto& p : s.parameters) {
        const bool pointer = p.kind == shader::Parameter::Kind::pointer;
        ordered_json one = {{"name", p.name}, {"offset", p.offset}, {"bytes", p.bytes}, {"pointer", pointer}};
        if (pointer) one["writable"] = p.writable;
        if (pointer && wgsl) one["binding"] = p.binding;
        j["parameters"].push_back(one);
      }
    }
    ordered_json one = size_of(s);
    one["workgroup_memory"] = s.needs.shared_bytes, one["needs"] = needs_of(s.needs);
    j[subgroups ? "with_subgroups" : "without_subgroups"] = one;
  }
  std::map<const Stands*, std::uint64_t> found;
  for (const auto& i : m.find(source.entry)->body)
    if (const auto* what = stands(i)) ++found[what];
  j["stands_for"] = ordered_json::array();
  for (const auto* what : {&kShuffle, &kProduct, &kMatrices, &kCopies, &kAdditions, &kNarrow})
    if (found.contains(what))
      j["stands_for"].push_back({{"what", what->what},
                                 {"count", found[what]},
                                 {"with_subgroups", what->with},
                                 {"without_subgroups", what->without}});
  return j;
}

std::string shown(const ordered_json& j, std::string_view language) {
  std::string out = cat(j["name"].get<std::string>(), " as ", language, "\n");
  const auto line = [&](std::string_view head, const std::string& rest) {
    text::append(out, cat("  ", head, std::string(head.size() < 28 ? 28 - head.size() : 2, ' '), rest, "\n"));
  };
  const auto& w = j["workgroup"];
  line("workgroup",
       cat(w[0].get<std::uint32_t>(), " x ", w[1].get<std::uint32_t>(), " x ", w[2].get<std::uint32_t>()));
  line("parameters", cat(j["block_bytes"].get<std::uint32_t>(), " bytes"));
  for (const auto& p : j["parameters"]) {
    std::string rest =
        cat("at ", p["offset"].get<std::uint32_t>(), ", ", p["bytes"].get<std::uint32_t>(), " bytes");
    if (p["pointer"].get<bool>())
      rest += p["writable"].get<bool>() ? ", pointer, written" : ", pointer, read";
    if (p.contains("binding")) {
      const auto binding = p["binding"].get<std::uint32_t>();
      rest += binding ? cat(", binding ", binding) : ", not accessed";
    }
    line(cat("  ", p["name"].get<std::string>()), rest);
  }
  for (const char* which : {"with_subgroups", "without_subgroups"}) {
    const auto& s = j[which];
    const bool lines = s.contains("lines");
    std::string needs;
    for (const auto& n : s["needs"]) needs += (needs.empty() ? ", needs " : ", ") + n.get<std::string>();
    line(which == std::string_view("with_subgroups") ? "subgroups of 32" : "other subgroups",
         cat(s[lines ? "lines" : "instructions"].get<std::uint64_t>(), lines ? " lines, " : " instructions, ",
             s["barriers"].get<std::uint64_t>(), " barriers, ", s["loops"].get<std::uint64_t>(), " loops, ",
             s["workgroup_memory"].get<std::uint64_t>(), " bytes of workgroup memory", needs));
  }
  for (const auto& s : j["stands_for"]) {
    const auto with = s["with_subgroups"].get<std::string>(),
               without = s["without_subgroups"].get<std::string>();
    line(cat(s["count"].get<std::uint64_t>(), " ", s["what"].get<std::string>()),
         with == without ? with : cat(with, "; with other subgroups ", without));
  }
  return out;
}

}  // namespace

int explain_shader(const Context& context, std::string_view language,
                   const std::vector<ShaderSource>& sources) {
  ordered_json all = {
      {"schema", "cgp.explain_shader/1"}, {"language", language}, {"shaders", ordered_json::array()}};
  std::string out;
  for (const auto& source : sources) {
    all["shaders"].push_back(explained(source, language == "wgsl"));
    out += (out.empty() ? "" : "\n") + shown(all["shaders"].back(), language == "wgsl" ? "WGSL" : "SPIR-V");
  }
  write_out(context.json ? spec::dumped(all, 2) + "\n" : out);
  return kClean;
}

}  // namespace cgp::cli
