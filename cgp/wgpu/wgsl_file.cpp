// SPDX-License-Identifier: Apache-2.0
#include "cgp/wgpu/wgsl_file.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::wgpu {
namespace {
using text::cat;

struct Token {
  std::string_view text;
  int line = 1;
};

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

std::vector<Token> tokens(std::string_view s) {
  std::vector<Token> out;
  int line = 1, depth = 0;  // of block comments, which nest
  for (std::size_t i = 0; i < s.size();) {
    const std::string_view rest = s.substr(i);
    if (rest[0] == '\n') ++line;
    if (rest.starts_with("/*")) {
      ++depth, i += 2;
    } else if (depth && rest.starts_with("*/")) {
      --depth, i += 2;
    } else if (depth || rest[0] <= ' ') {
      ++i;
    } else if (rest.starts_with("//")) {
      i = std::min(s.find('\n', i), s.size());
    } else {
      std::size_t n = 0;
      while (n < rest.size() && is_word(rest[n])) ++n;
      out.push_back({rest.substr(0, std::max<std::size_t>(n, 1)), line});
      i += out.back().text.size();
    }
  }
  return out;
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : all_(tokens(text)), file_(file) {}

  WgslInterface read() {
    WgslInterface out;
    while (at_ < all_.size()) {
      const Token t = next();
      if (t.text == "@") {
        attribute();
      } else if (t.text == "const" || t.text == "override") {
        constant();
      } else if (t.text == "fn") {
        if (attributes_.contains("compute")) {
          WgslEntry e{std::string(next().text)};
          const auto& size = attributes_["workgroup_size"];
          for (std::size_t i = 0; i < std::min<std::size_t>(3, size.size()); ++i)
            e.workgroup[i] = number(size[i]);
          out.entries.push_back(std::move(e));
        }
        attributes_.clear();
      } else if (t.text == "var") {
        if (attributes_.contains("binding")) out.bindings.push_back(variable(t));
        attributes_.clear();
      } else if (t.text == ";" || t.text == "}") {
        attributes_.clear();
      }
    }
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& rule, const Token& t) const {
    throw ParseError({rule, cat(file_, ":", t.line), cat("at \"", t.text, "\""), {}});
  }
  Token next() {
    if (at_ == all_.size())
      fail("the text of a shader must not end here", all_.empty() ? Token{} : all_.back());
    return all_[at_++];
  }
  bool take(std::string_view what) {
    if (at_ == all_.size() || all_[at_].text != what) return false;
    ++at_;
    return true;
  }
  void attribute() {
    auto& arguments = attributes_[std::string(next().text)];
    if (!take("(")) return;
    while (!take(")")) {
      const Token t = next();
      if (t.text != ",") arguments.push_back(t);
    }
  }
  void constant() {
    const std::string name(next().text);
    if (take(":")) next();
    if (take("=") && at_ < all_.size()) constants_[name] = all_[at_];
  }
  std::uint32_t number(const Token& t) const {
    std::string_view digits = t.text;
    if (const auto known = constants_.find(std::string(digits)); known != constants_.end())
      digits = known->second.text;
    if (digits.ends_with('u') || digits.ends_with('i')) digits.remove_suffix(1);
    std::uint32_t v = 0;
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), v);
    if (r.ec != std::errc() || r.ptr != digits.data() + digits.size())
      fail("sizes and bindings are numbers, or names of constants that are", t);
    return v;
  }
  WgslBinding variable(const Token& t) {
    WgslBinding b;
    if (!attributes_.contains("group")) fail("a binding has a @group", t);
    const auto one = [&](const char* name) {
      const auto& a = attributes_[name];
      if (a.size() != 1) fail(cat("@", name, " takes one number"), t);
      return number(a[0]);
    };
    b.group = one("group"), b.binding = one("binding");
    if (!take("<"))
      throw Unsupported({"shaders are timed with buffers alone",
                         cat(file_, ":", t.line),
                         cat(next().text, " is none"),
                         {}});
    b.uniform = next().text == "uniform";
    while (!take(">")) next();
    b.name = next().text;
    return b;
  }
  const std::vector<Token> all_;
  const std::string file_;
  std::size_t at_ = 0;
  std::map<std::string, std::vector<Token>> attributes_;
  std::map<std::string, Token> constants_;
};

}  // namespace

WgslInterface read_wgsl(std::string_view text, const std::string& file) { return Reader(text, file).read(); }

std::vector<double> time_wgsl(const Device& d, const std::string& text, const WgslEntry& entry,
                              const std::vector<WgslBinding>& bindings,
                              const std::vector<std::vector<std::byte>>& data,
                              std::array<std::uint32_t, 3> grid, int repeat) {
  const Api& api = *d.api;
  const Owned pipeline = d.pipeline(text, entry.name);
  std::vector<Owned> buffers;
  std::map<std::uint32_t, std::vector<BindGroupEntry>> entries;
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    const auto& b = bindings[i];
    buffers.push_back(d.buffer_of(data[i], b.uniform ? kUniform : kStorage));
    BindGroupEntry e;
    e.binding = b.binding, e.buffer = buffers.back().get(), e.size = data[i].size();
    entries[b.group].push_back(e);
  }
  std::map<std::uint32_t, Owned> groups;
  for (const auto& [number, list] : entries) {
    const Owned layout(api.wgpuComputePipelineGetBindGroupLayout(pipeline.get(), number),
                       api.wgpuBindGroupLayoutRelease);
    d.check("wgpuComputePipelineGetBindGroupLayout", cat("group ", number));
    BindGroupDescriptor g;
    g.layout = layout.get(), g.entry_count = list.size(), g.entries = list.data();
    groups.emplace(number, Owned(api.wgpuDeviceCreateBindGroup(d.handle, &g), api.wgpuBindGroupRelease));
    d.check("wgpuDeviceCreateBindGroup", cat("group ", number));
  }
  Owned queries;
  if (d.adapter.timestamps) {
    QuerySetDescriptor q;
    q.count = 2;
    queries = Owned(api.wgpuDeviceCreateQuerySet(d.handle, &q), api.wgpuQuerySetRelease);
    d.check("wgpuDeviceCreateQuerySet");
  }
  const Owned resolved = d.buffer(16, kQueryResolve | kCopySource),
              seen = d.buffer(16, kMapRead | kCopyDestination);
  std::vector<double> out;
  for (int i = -1; i < repeat; ++i) {
    Owned encoder = d.encoder();
    PassTimestampWrites writes;
    writes.queries = queries.get(), writes.begin = 0, writes.end = 1;
    ComputePassDescriptor p;
    if (queries) p.timestamps = &writes;
    {
      const Owned pass(api.wgpuCommandEncoderBeginComputePass(encoder.get(), &p),
                       api.wgpuComputePassEncoderRelease);
      api.wgpuComputePassEncoderSetPipeline(pass.get(), pipeline.get());
      for (const auto& [number, group] : groups)
        api.wgpuComputePassEncoderSetBindGroup(pass.get(), number, group.get(), 0, nullptr);
      api.wgpuComputePassEncoderDispatchWorkgroups(pass.get(), grid[0], grid[1], grid[2]);
      api.wgpuComputePassEncoderEnd(pass.get());
    }
    d.check("wgpuComputePassEncoderEnd", entry.name);
    if (queries) {
      api.wgpuCommandEncoderResolveQuerySet(encoder.get(), queries.get(), 0, 2, resolved.get(), 0);
      api.wgpuCommandEncoderCopyBufferToBuffer(encoder.get(), resolved.get(), 0, seen.get(), 0, 16);
    }
    const auto begin = std::chrono::steady_clock::now();
    d.submit(std::move(encoder));
    d.wait();
    double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    if (queries) {
      std::array<std::uint64_t, 2> ticks{};
      d.read(seen.get(), std::as_writable_bytes(std::span(ticks)));
      ms = double(ticks[1] - ticks[0]) * d.timestamp_period * 1e-6;
    }
    if (i >= 0) out.push_back(ms);
  }
  return out;
}

}  // namespace cgp::wgpu
