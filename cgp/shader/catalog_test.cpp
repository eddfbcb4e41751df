// SPDX-License-Identifier: Apache-2.0
// Every kernel of the catalogue in both languages, against testdata/catalog.txt: how many images are translated, and
// why the others are not. What falls out of the subset, or comes into it, changes the file.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/ptx/parse.h"
#include "cgp/shader/shader.h"

namespace cgp::shader {
namespace {

TEST(catalog, every_kernel_is_translated_or_refused_as_listed) {
  std::string table =
      "# Images of a kernel for an architecture, and how many of them are WGSL and SPIR-V; below, what the "
      "others are refused for.\n";
  std::set<std::string> seen;
  for (const char* arch : {"sm_75", "sm_80"})
    for (const auto& kernel : kernels::catalog()) {
      int count = 0, done[2] = {};
      std::map<std::string, int> refused[2];
      for (const auto& image : kernel.images(arch)) {
        if (!seen.insert(image.name).second) continue;
        ++count;
        const ptx::Module m = ptx::parse(*image.ptx);
        ShaderOptions o;
        o.dynamic_shared = image.dynamic_smem;
        if (image.block.x) o.block = {image.block.x, image.block.y, image.block.z};
        for (int language : {0, 1}) try {
            const Shader s =
                language == 0 ? translate_wgsl(m, image.entry, o) : translate_spirv(m, image.entry, o);
            EXPECT_TRUE(language == 0 ? !s.wgsl.empty() : !s.spirv.empty());
            ++done[language];
          } catch (const BuildError& e) {
            ++refused[language][e.rule()];
          }
      }
      text::append(table, text::cat(arch, " ", kernel.name, ": ", count, " images, wgsl ", done[0],
                                    ", spirv ", done[1], "\n"));
      for (int language : {0, 1})
        for (const auto& [rule, n] : refused[language])
          text::append(table, text::cat("  ", language == 0 ? "wgsl" : "spirv", " ", n, ": ", rule, "\n"));
    }
  EXPECT_EQ(table, read_file(CGP_SHADER_TESTDATA "/catalog.txt")) << "the table as it is now:\n" << table;
}

}  // namespace
}  // namespace cgp::shader
