// SPDX-License-Identifier: Apache-2.0
// Every kernel of the catalogue in both languages: testdata/catalog.txt lists what is refused. What falls out of the
// subset, or comes into it, changes the file.
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
      "# Images of the catalogue's kernels for sm_75 and sm_80 that are not WGSL or SPIR-V, and why. All "
      "others are.\n";
  std::set<std::string> seen;
  for (const auto& kernel : kernels::catalog()) {
    std::map<std::string, int> refused[2];
    for (const char* arch : {"sm_75", "sm_80"})
      for (const auto& image : kernel.images(arch)) {
        if (!seen.insert(image.name).second) continue;
        const ptx::Module m = ptx::parse(*image.ptx);
        ShaderOptions o;
        o.dynamic_shared = image.dynamic_smem;
        if (image.block.x) o.block = {image.block.x, image.block.y, image.block.z};
        for (int language : {0, 1}) try {
            const Shader s =
                language == 0 ? translate_wgsl(m, image.entry, o) : translate_spirv(m, image.entry, o);
            EXPECT_TRUE(language == 0 ? !s.wgsl.empty() : !s.spirv.empty());
          } catch (const BuildError& e) {
            ++refused[language][e.rule()];
          }
      }
    for (int language : {0, 1})
      for (const auto& [rule, n] : refused[language])
        text::append(table, text::cat(kernel.name, ", ", language == 0 ? "WGSL" : "SPIR-V", ", ", n, ": ",
                                      rule, "\n"));
  }
  EXPECT_EQ(table, read_file(CGP_SHADER_TESTDATA "/catalog.txt")) << "the table as it is now:\n" << table;
}

}  // namespace
}  // namespace cgp::shader
