// SPDX-License-Identifier: Apache-2.0
#include <link.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "cgp/base/text.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"
#include "tools/cgp/version.h"

namespace cgp::cli {

std::string build_id() {
  struct Search {
    std::string id;
    static int visit(dl_phdr_info* info, std::size_t, void* data) {
      for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& header = info->dlpi_phdr[i];
        if (header.p_type != PT_NOTE) continue;
        const char* at = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
        const char* const end = at + header.p_memsz;
        while (at + sizeof(ElfW(Nhdr)) <= end) {
          ElfW(Nhdr) note;
          std::memcpy(&note, at, sizeof note);
          const char* const name = at + sizeof note;
          const char* const desc = name + ((note.n_namesz + 3) & ~3u);
          if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
            constexpr char digits[] = "0123456789abcdef";
            std::string& id = static_cast<Search*>(data)->id;
            for (unsigned b = 0; b < note.n_descsz; ++b) {
              const auto byte = static_cast<unsigned char>(desc[b]);
              id.push_back(digits[byte >> 4]);
              id.push_back(digits[byte & 15]);
            }
            return 1;
          }
          at = desc + ((note.n_descsz + 3) & ~3u);
        }
      }
      return 1;  // the first object is this program; the libraries' ids are not ours
    }
  } search;
  dl_iterate_phdr(Search::visit, &search);
  return search.id.empty() ? "unknown" : search.id;
}

int version(const Context& context) {
  if (context.json) {
    const nlohmann::ordered_json j = {{"schema", "cgp.version/1"}, {"version", kVersion},
                                      {"ptx_isa", kPtxIsa},        {"targets", kTargets},
                                      {"build_id", build_id()},    {"compiler", __VERSION__}};
    write_out(spec::dumped(j, 2) + "\n");
    return kClean;
  }
  std::vector<std::string> targets(std::begin(kTargets), std::end(kTargets));
  write_out(text::cat("cgp ", kVersion, "\nPTX ISA   up to ", kPtxIsa, "\ntargets   ",
                      text::join(targets, " "), "\ncompiler  ", __VERSION__, "\nbuild id  ", build_id(),
                      "\n"));
  return kClean;
}

}  // namespace cgp::cli
