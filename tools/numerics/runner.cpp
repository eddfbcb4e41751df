// SPDX-License-Identifier: Apache-2.0
#include "runner.h"

#include "cgp/base/text.h"
#include "cgp/emu/emu.h"
#include "cgp/runtime/launcher.h"

namespace cgp::numerics {
namespace {

using text::cat;

std::uint64_t aligned(std::uint64_t v) { return (v + 255) & ~std::uint64_t(255); }

const char* register_type(int bits) {
  return bits == 64 ? ".b64" : bits == 16 ? ".b16" : bits == 8 ? ".b8" : ".b32";
}

void declare(std::string& out, const char* name, std::size_t k, int bits, int count) {
  if (count == 0) return;
  out += cat(".reg ", register_type(bits), " ");
  for (int n = 0; n < count; ++n) out += cat(n ? ", " : "", name, k, "_", n);
  out += ";\n";
}

std::string case_text(const Case& c, const std::vector<std::uint64_t>& in,
                      const std::vector<std::uint64_t>& out, std::size_t number) {
  std::string s = cat("// ", c.key, "\n{\n.reg .b64 %cell;\n");
  for (std::size_t k = 0; k < c.inputs.size(); ++k) {
    const Input& i = c.inputs[k];
    if (i.draw == Draw::block) {
      const std::uint32_t bytes = i.role == 0 ? kBlockA : kBlockB;
      s += cat(".reg .b64 %i", k, "_p;\n.reg .b32 %block", k, ";\nmov.u32 %block", k, ", %ctaid.x;\n",
               "mad.wide.u32 %i", k, "_p, %block", k, ", ", bytes, ", %in;\nadd.u64 %i", k, "_p, %i", k,
               "_p, ", in[k], ";\n");
      continue;
    }
    declare(s, "%i", k, i.bits, i.count);
    s += cat("mad.wide.u32 %cell, %gid, ", cell_bytes(i.bits, i.count), ", %in;\n");
    for (int n = 0; n < i.count; ++n)
      s += cat("ld.global.b", i.bits, " %i", k, "_", n, ", [%cell+",
               in[k] + std::uint64_t(n) * (i.bits == 64 ? 8 : 4), "];\n");
  }
  for (std::size_t k = 0; k < c.outputs.size(); ++k)
    declare(s, "%o", k, c.outputs[k].bits, c.outputs[k].count);
  std::string body = c.body;
  for (std::size_t at; (at = body.find('$')) != body.npos;) body.replace(at, 1, cat(number));
  s += body;
  for (std::size_t k = 0; k < c.outputs.size(); ++k) {
    const Output& o = c.outputs[k];
    s += cat("mad.wide.u32 %cell, %gid, ", cell_bytes(o.bits, o.count), ", %out;\n");
    for (int n = 0; n < o.count; ++n)
      s += cat("st.global.b", o.bits, " [%cell+", out[k] + std::uint64_t(n) * (o.bits == 64 ? 8 : 4), "], %o",
               k, "_", n, ";\n");
  }
  return s + "}\n";
}

std::vector<Answer> run_module(const runtime::Device& device, std::span<const Case* const> group) {
  const Module m = build_module(group);
  auto in = device.upload<std::uint32_t>(m.input);
  auto out = device.zeros<std::uint32_t>(m.output_bytes / 4);
  auto scratch = device.zeros<std::uint32_t>(m.scratch_bytes / 4);
  const runtime::LoadedModule loaded = device.load_module(m.ptx);
  loaded.kernel("k")(device.stream(), runtime::Dim3{m.cases / kBlock, 1, 1}, in, out, scratch);
  device.sync();
  const std::vector<std::uint32_t> cells = out.to_vector();
  std::vector<Answer> answers(group.size());
  for (std::size_t c = 0; c < group.size(); ++c)
    for (std::size_t k = 0; k < group[c]->outputs.size(); ++k) {
      const Output& o = group[c]->outputs[k];
      const auto first = cells.begin() + std::ptrdiff_t(m.output_at[c][k] / 4);
      answers[c].outputs.emplace_back(first,
                                      first + std::ptrdiff_t(m.cases * (cell_bytes(o.bits, o.count) / 4)));
    }
  return answers;
}

}  // namespace

std::vector<std::vector<const Case*>> groups(const Corpus& corpus, std::size_t scalar_cases_per_module) {
  std::vector<std::vector<const Case*>> out;
  std::map<std::pair<std::string, std::uint32_t>, std::size_t> open;
  for (const Case& c : corpus.cases) {
    const std::size_t most = c.family == "wgmma" ? 8 : c.family == "matrix" ? 16 : scalar_cases_per_module;
    auto [it, fresh] = open.try_emplace({c.family, c.cases}, out.size());
    if (!fresh && out[it->second].size() >= most) fresh = true;
    if (fresh) {
      it->second = out.size();
      out.emplace_back();
    }
    out[it->second].push_back(&c);
  }
  return out;
}

Module build_module(std::span<const Case* const> group) {
  Module m;
  m.cases = group[0]->cases;
  std::map<Input, std::uint64_t> placed;
  std::string body;
  std::uint32_t shared = 0;
  for (const Case* c : group) {
    std::vector<std::uint64_t> in;
    for (const Input& i : c->inputs) {
      auto [it, fresh] = placed.try_emplace(i, aligned(m.input.size() * 4));
      if (fresh) {
        m.input.resize(it->second / 4);
        const auto v = values(i, m.cases);
        m.input.insert(m.input.end(), v.begin(), v.end());
      }
      in.push_back(it->second);
    }
    std::vector<std::uint64_t> out;
    for (const Output& o : c->outputs) {
      out.push_back(m.output_bytes);
      m.output_bytes += aligned(std::uint64_t(m.cases) * cell_bytes(o.bits, o.count));
    }
    body += case_text(*c, in, out, m.output_at.size());
    m.output_at.push_back(std::move(out));
    if (c->family == "wgmma") shared = kBlockA + kBlockB;
    if (c->family != "scalar") shared = std::max<std::uint32_t>(shared, 12288);
  }
  m.scratch_bytes = std::uint64_t(m.cases) * 16;
  m.ptx = cat(
      ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 pin, .param .u64 pout, ",
      ".param .u64 pscratch)\n.reqntid 128\n{\n.reg .b64 %in, %out, %scratch;\n.reg .b32 %gid, %th, %lane, "
      "%blk;\n",
      shared ? cat(".shared .align 1024 .b8 sm[", shared, "];\n") : "",
      "ld.param.u64 %in, [pin];\nld.param.u64 %out, [pout];\nld.param.u64 %scratch, [pscratch];\n",
      "mov.u32 %th, %tid.x;\nmov.u32 %lane, %laneid;\nmov.u32 %blk, %ctaid.x;\n",
      "mad.lo.u32 %gid, %blk, 128, %th;\n", body, "ret;\n}\n");
  return m;
}

std::vector<Answer> run(const runtime::Device& device, std::span<const Case* const> group) {
  try {
    return run_module(device, group);
  } catch (const Error& e) {
    if (group.size() == 1) {
      std::vector<Answer> one(1);
      one[0].error = e.what();
      return one;
    }
  }
  std::vector<Answer> all;
  for (std::size_t k = 0; k < group.size(); ++k) all.push_back(run(device, group.subspan(k, 1))[0]);
  return all;
}

}  // namespace cgp::numerics
