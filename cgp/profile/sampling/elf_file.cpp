// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/sampling/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace cgp::profile {
namespace {

/// A file in memory, as far as it is touched.
class Mapped {
 public:
  explicit Mapped(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat s {};
    if (fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size > 0) {
      void* at = mmap(nullptr, std::size_t(s.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
      if (at != MAP_FAILED) bytes_ = {static_cast<const char*>(at), std::size_t(s.st_size)};
    }
    if (fd >= 0) close(fd);
  }
  ~Mapped() {
    if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  std::string_view bytes() const { return bytes_; }

  template <class T>
  std::optional<T> at(std::uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return std::nullopt;
    T v;
    std::memcpy(&v, bytes_.data() + offset, sizeof v);
    return v;
  }
  std::string_view part(std::uint64_t offset, std::uint64_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset ? bytes_.substr(offset, size)
                                                                     : std::string_view{};
  }

 private:
  std::string_view bytes_;
};

std::string_view text_at(std::string_view table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  const auto end = table.find('\0', offset);
  return end == table.npos ? std::string_view{} : table.substr(offset, end - offset);
}

struct Symbol {
  std::uint64_t begin = 0, end = 0;
  std::string_view name;
  int rank = 0;  ///< of several at one address the global one is what people know
};

std::string build_id_path(std::string_view note) {
  // Elf64_Nhdr, "GNU\0", the bytes.
  if (note.size() < 16 + 2) return {};
  std::string hex;
  for (unsigned char c : note.substr(16)) {
    constexpr const char* digits = "0123456789abcdef";
    hex += digits[c >> 4], hex += digits[c & 15];
  }
  return "/usr/lib/debug/.build-id/" + hex.substr(0, 2) + "/" + hex.substr(2) + ".debug";
}

}  // namespace

struct ElfFile::Impl {
  explicit Impl(const std::string& path) : file(path) {}

  Mapped file;
  std::vector<Elf64_Phdr> loads;
  std::vector<Elf64_Shdr> sections;
  std::vector<Symbol> symbols;
  std::string_view names;
  std::unique_ptr<Impl> debug;

  const Symbol* symbol_at(std::uint64_t address) const;

  bool read() {
    const auto header = file.at<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB)
      return false;
    for (int i = 0; i < header->e_phnum; ++i)
      if (const auto p = file.at<Elf64_Phdr>(header->e_phoff + std::uint64_t(i) * header->e_phentsize);
          p && p->p_type == PT_LOAD)
        loads.push_back(*p);
    for (int i = 0; i < header->e_shnum; ++i)
      if (const auto s = file.at<Elf64_Shdr>(header->e_shoff + std::uint64_t(i) * header->e_shentsize))
        sections.push_back(*s);
    if (header->e_shstrndx < sections.size()) names = content(sections[header->e_shstrndx]);
    return true;
  }

  std::string_view content(const Elf64_Shdr& s) const {
    return s.sh_type == SHT_NOBITS || (s.sh_flags & SHF_COMPRESSED) ? std::string_view{}
                                                                    : file.part(s.sh_offset, s.sh_size);
  }
  std::string_view section(std::string_view name) const {
    for (const auto& s : sections)
      if (text_at(names, s.sh_name) == name) return content(s);
    return {};
  }

  void add_symbols(std::vector<Symbol>& out) const {
    for (const auto& table : sections) {
      if ((table.sh_type != SHT_SYMTAB && table.sh_type != SHT_DYNSYM) || table.sh_link >= sections.size())
        continue;
      const auto all = content(table), strings = content(sections[table.sh_link]);
      for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= all.size(); at += sizeof(Elf64_Sym)) {
        Elf64_Sym s;
        std::memcpy(&s, all.data() + at, sizeof s);
        const int type = ELF64_ST_TYPE(s.st_info), bind = ELF64_ST_BIND(s.st_info);
        if (s.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC)) continue;
        if (const auto name = text_at(strings, s.st_name); !name.empty())
          out.push_back({s.st_value, s.st_value + s.st_size, name,
                         bind == STB_GLOBAL ? 0
                         : bind == STB_WEAK ? 1
                                            : 2});
      }
    }
  }
};

ElfFile::ElfFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ElfFile::~ElfFile() = default;

std::unique_ptr<ElfFile> ElfFile::open(const std::string& path) {
  auto impl = std::make_unique<Impl>(path);
  if (!impl->read()) return nullptr;
  impl->add_symbols(impl->symbols);
  if (const auto debug = build_id_path(impl->section(".note.gnu.build-id")); !debug.empty()) {
    auto other = std::make_unique<Impl>(debug);
    if (other->read()) {
      other->add_symbols(impl->symbols);
      impl->debug = std::move(other);
    }
  }
  auto& all = impl->symbols;
  std::stable_sort(all.begin(), all.end(), [](const Symbol& a, const Symbol& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.rank < b.rank;
  });
  all.erase(std::unique(all.begin(), all.end(),
                        [](const Symbol& a, const Symbol& b) { return a.begin == b.begin; }),
            all.end());
  for (std::size_t i = 0; i < all.size(); ++i)  // hand-written assembly often has no size
    if (all[i].end == all[i].begin) all[i].end = i + 1 < all.size() ? all[i + 1].begin : all[i].begin + 4096;
  return std::unique_ptr<ElfFile>(new ElfFile(std::move(impl)));
}

std::uint64_t ElfFile::address_of(std::uint64_t offset) const {
  for (const auto& p : impl_->loads)
    if (offset >= p.p_offset && offset - p.p_offset < p.p_filesz) return offset - p.p_offset + p.p_vaddr;
  return 0;
}

ElfFile::Section ElfFile::section(std::string_view name) const {
  for (const auto& s : impl_->sections)
    if (text_at(impl_->names, s.sh_name) == name) return {s.sh_addr, impl_->content(s)};
  return {};
}

const Symbol* ElfFile::Impl::symbol_at(std::uint64_t address) const {
  const auto& all = symbols;
  const auto next = std::upper_bound(all.begin(), all.end(), address,
                                     [](std::uint64_t a, const Symbol& s) { return a < s.begin; });
  if (next == all.begin()) return nullptr;
  const Symbol& s = *std::prev(next);
  return address < s.end ? &s : nullptr;
}

std::string_view ElfFile::function_at(std::uint64_t address) const {
  const auto* s = impl_->symbol_at(address);
  return s ? s->name : std::string_view{};
}

std::pair<std::uint64_t, std::uint64_t> ElfFile::range_at(std::uint64_t address) const {
  const auto* s = impl_->symbol_at(address);
  return s ? std::pair{s->begin, s->end} : std::pair<std::uint64_t, std::uint64_t>{};
}

std::map<std::uint64_t, SourceLine> ElfFile::lines_at(const std::vector<std::uint64_t>& addresses) const {
  const Impl& from = impl_->section(".debug_line").empty() && impl_->debug ? *impl_->debug : *impl_;
  return read_lines(from.section(".debug_line"), from.section(".debug_str"), from.section(".debug_line_str"),
                    addresses);
}

}  // namespace cgp::profile
