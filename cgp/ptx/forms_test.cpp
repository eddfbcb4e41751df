// SPDX-License-Identifier: Apache-2.0
// The instruction table against facts that ptxas established (testdata/forms.tsv).
#include <gtest/gtest.h>

#include <algorithm>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/ptx/forms.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/verify/verify.h"

using namespace cgp;
using namespace cgp::ptx;

namespace {

struct Fact {
  std::string name, version, at, parameters, module, directives, declarations, body;
  std::vector<std::string> accepted, refused;
};

std::string lines(std::string_view s) {
  std::string out;
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '\\' && i + 1 < s.size() && s[i + 1] == 'n') {
      out.push_back('\n');
      ++i;
    } else {
      out.push_back(s[i]);
    }
  }
  return out;
}

std::vector<Fact> facts() {
  std::vector<Fact> out;
  const std::string all = read_file(CGP_PTX_TESTDATA "/forms.tsv");
  for (std::string_view line : text::split(all, '\n')) {
    if (line.empty() || line[0] == '#') continue;
    const auto c = text::split(line, '\t');
    EXPECT_EQ(c.size(), 10u) << line;
    if (c.size() != 10) continue;
    auto list = [](std::string_view s) {
      std::vector<std::string> v;
      for (std::string_view t : text::split(s, ','))
        if (!t.empty()) v.emplace_back(t);
      return v;
    };
    out.push_back({std::string(c[0]), std::string(c[1]), std::string(c[2]), lines(c[5]), lines(c[6]),
                   lines(c[7]), lines(c[8]), lines(c[9]), list(c[3]), list(c[4])});
  }
  return out;
}

std::string render(const Fact& f, std::string_view version, std::string_view target) {
  const bool wide = f.body.find("%q") != std::string::npos;
  const std::string module =
      f.module.empty() ? ".shared .align 1024 .b8 sm[8192];\n.global .align 128 .b8 gm[1024];" : f.module;
  const std::string parameters =
      f.parameters.empty() ? ".param .u64 a, .param .u64 b, .param .align 64 .b8 tm[128]" : f.parameters;
  return text::cat(".version ", version, "\n.target ", target, "\n.address_size 64\n", module,
                   "\n.visible .entry k(", parameters, ")\n", f.directives,
                   "\n{\n.reg .pred %p<16>;\n.reg .b16 %h<64>;\n.reg .b32 %r<300>;\n.reg .b64 %rd<64>;\n",
                   wide ? ".reg .b128 %q<4>;\n" : "", ".reg .f32 %f<300>;\n.reg .f64 %d<64>;\n",
                   f.declarations, "\n", f.body, "\nret;\n}\n");
}

// Empty when legal, else the first problem (or the parser's message).
std::string judge(const std::string& ptx) {
  try {
    const Module m = parse(ptx);
    CheckOptions options;
    options.foreign = true;
    const auto problems = check(m, options);
    if (problems.empty()) return {};
    return text::cat(problems[0].instruction, ": ", problems[0].rule, " | ", problems[0].why, " | ",
                     problems[0].hint);
  } catch (const Error& e) {
    return e.what();
  }
}

const std::vector<std::string> kVersions = {"6.0", "6.1", "6.2", "6.3", "6.4", "6.5", "7.0", "7.1", "7.2",
                                            "7.3", "7.4", "7.5", "7.6", "7.7", "7.8", "8.0", "8.1", "8.2",
                                            "8.3", "8.4", "8.5", "8.6", "8.7", "8.8", "9.0"};

}  // namespace

TEST(forms, legal_forms_pass_at_their_lowest_version) {
  for (const Fact& f : facts()) {
    if (f.version.empty()) continue;
    EXPECT_EQ(judge(render(f, f.version, f.at)), "") << f.name << " at " << f.version << " " << f.at;
  }
}

TEST(forms, one_version_earlier_is_refused) {
  for (const Fact& f : facts()) {
    auto it = std::find(kVersions.begin(), kVersions.end(), f.version);
    if (it == kVersions.end() || it == kVersions.begin()) continue;
    EXPECT_NE(judge(render(f, *(it - 1), f.at)), "") << f.name << " passes at " << *(it - 1) << " " << f.at;
  }
}

TEST(forms, targets_agree) {
  for (const Fact& f : facts()) {
    for (const std::string& t : f.accepted)
      EXPECT_EQ(judge(render(f, "9.0", t)), "") << f.name << " for " << t;
    for (const std::string& t : f.refused)
      EXPECT_NE(judge(render(f, "9.0", t)), "") << f.name << " passes for " << t;
  }
}

TEST(forms, illegal_forms_are_refused) {
  int n = 0;
  for (const Fact& f : facts()) {
    if (!f.version.empty()) continue;
    ++n;
    EXPECT_NE(judge(render(f, "9.0", f.at)), "") << f.name;
  }
  EXPECT_EQ(n, 29);
}
