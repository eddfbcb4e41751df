// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/cubin.h"

#include <algorithm>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::profile {
namespace {

using text::cat;

constexpr int kMachineCuda = 190;
constexpr std::uint64_t kReservedShared = 1024;  // of every block from sm_90 on
enum Attribute : std::uint8_t {
  kMaxThreads = 0x05,
  kParamBank = 0x0a,
  kRequiredThreads = 0x10,
  kFrameSize = 0x11,
  kParamSize = 0x19,
  kMaxRegisters = 0x1b,
  kRegisters = 0x2f,
  kBarriers = 0x4c
};
enum Format : std::uint8_t { kNothing = 1, kByte = 2, kHalf = 3, kSized = 4 };

struct Section {
  std::string name;
  std::uint32_t type = 0, link = 0, info = 0;
  std::uint64_t offset = 0, size = 0;
};

class Reader {
 public:
  Reader(std::string_view file, std::string path) : file_(file), path_(std::move(path)) {}
  template <class T>
  T at(std::uint64_t offset) const {
    T value;
    if (offset > file_.size() || file_.size() - offset < sizeof value) fail("it ends before its tables do");
    std::memcpy(&value, file_.data() + offset, sizeof value);
    return value;
  }
  std::string_view part(std::uint64_t offset, std::uint64_t size) const {
    if (offset > file_.size() || file_.size() - offset < size) fail("a section lies beyond its end");
    return file_.substr(offset, size);
  }
  std::string text(std::uint64_t offset) const {
    if (offset >= file_.size()) fail("a name lies beyond its end");
    const auto end = file_.find('\0', offset);
    if (end == std::string_view::npos) fail("a name has no end");
    return std::string(file_.substr(offset, end - offset));
  }
  [[noreturn]] void fail(const std::string& why, const std::string& hint = {}) const {
    throw ParseError(ErrorText{"a cubin is an ELF file for NVIDIA GPUs", path_, why, hint});
  }

 private:
  std::string_view file_;
  std::string path_;
};

void check_kind(const Reader& r, std::string_view file) {
  const auto begins = [&](std::string_view magic) { return file.substr(0, magic.size()) == magic; };
  if (begins(std::string_view("\x50\xed\x55\xba", 4)))
    r.fail("it is a fat binary, which holds several", "cuobjdump -xelf all FILE writes its cubins");
  if (!begins("\x7f"
              "ELF"))
    r.fail("it does not begin as ELF files do", "ptxas -arch=sm_90a x.ptx -o x.cubin makes one");
  if (file.size() < 64 || file[4] != 2 || file[5] != 1) r.fail("it is no little-endian ELF of 64 bits");
  if (const int machine = r.at<std::uint16_t>(18); machine != kMachineCuda)
    r.fail(cat("it is a program for another machine (e_machine ", machine, ")"),
           machine == 62
               ? "cgp explain --x86 FILE looks at its vector instructions; cuobjdump -xelf all FILE writes "
                 "the cubins in it"
               : "");
}

std::vector<Section> sections_of(const Reader& r) {
  const auto table = r.at<std::uint64_t>(40);
  const int entry = r.at<std::uint16_t>(58), count = r.at<std::uint16_t>(60), names = r.at<std::uint16_t>(62);
  if (entry != 64 || names >= count) r.fail("its table of sections is damaged");
  std::vector<Section> out;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t at = table + std::uint64_t(i) * 64;
    Section s;
    s.type = r.at<std::uint32_t>(at + 4);
    s.offset = r.at<std::uint64_t>(at + 24), s.size = r.at<std::uint64_t>(at + 32);
    s.link = r.at<std::uint32_t>(at + 40), s.info = r.at<std::uint32_t>(at + 44);
    out.push_back(s);
  }
  const std::uint64_t base = out[std::size_t(names)].offset;
  for (int i = 0; i < count; ++i)
    out[std::size_t(i)].name = r.text(base + r.at<std::uint32_t>(table + std::uint64_t(i) * 64));
  return out;
}

/// Names of functions by index of their symbol; only these.
std::map<std::uint32_t, std::string> functions_of(const Reader& r, const std::vector<Section>& all) {
  std::map<std::uint32_t, std::string> out;
  for (const auto& s : all) {
    if (s.type != 2) continue;  // SHT_SYMTAB
    if (s.link >= all.size()) r.fail("its symbols have no names");
    for (std::uint64_t i = 0; i * 24 < s.size; ++i) {
      const std::uint64_t at = s.offset + i * 24;
      if ((r.at<std::uint8_t>(at + 4) & 15) == 2)  // STT_FUNC
        out[std::uint32_t(i)] = r.text(all[s.link].offset + r.at<std::uint32_t>(at));
    }
  }
  return out;
}

/// Calls `each(attribute, format, value)`; a value of a byte or half is in its first bytes.
template <class Each>
void attributes(const Reader& r, const Section& s, Each each) {
  for (std::uint64_t at = s.offset, end = s.offset + s.size; at + 4 <= end;) {
    const auto format = r.at<std::uint8_t>(at), attribute = r.at<std::uint8_t>(at + 1);
    const std::uint64_t size = format == kSized ? r.at<std::uint16_t>(at + 2) : 0;
    if (format < kNothing || format > kSized || at + 4 + size > end)
      r.fail(cat("attributes in ", s.name, " are damaged"));
    each(attribute, format,
         format == kSized ? r.part(at + 4, size) : r.part(at + 2, format == kHalf ? 2 : 1));
    at += 4 + size;
  }
}

std::uint32_t word(std::string_view value, std::size_t index) {
  std::uint32_t out = 0;
  if (value.size() >= 4 * (index + 1)) std::memcpy(&out, value.data() + 4 * index, 4);
  return out;
}

void read_info(CubinKernel& k, std::uint8_t attribute, std::string_view v) {
  const auto triple = [&] { return std::array<std::uint32_t, 3>{word(v, 0), word(v, 1), word(v, 2)}; };
  const auto half = [&] {
    return std::uint32_t(std::uint8_t(v[0])) | (v.size() > 1 ? std::uint32_t(std::uint8_t(v[1])) << 8 : 0);
  };
  if (attribute == kParamSize) k.entry = true, k.parameter_bytes = half();
  if (attribute == kParamBank) k.entry = true;
  if (attribute == kMaxThreads && v.size() >= 12) k.max_threads = triple();
  if (attribute == kRequiredThreads && v.size() >= 12) k.required_threads = triple();
  if (attribute == kMaxRegisters) k.max_registers = half();
  if (attribute == kBarriers) k.barriers = half();
}

/// ".nv.constant3.kernel" -> 3 and "kernel"; -1 when it is none.
int constant_bank(const std::string& section, std::string& kernel) {
  const std::string prefix = ".nv.constant";
  if (section.rfind(prefix, 0) != 0 || section.size() <= prefix.size() ||
      !std::isdigit(static_cast<unsigned char>(section[prefix.size()])))
    return -1;
  std::size_t used = 0;
  const int bank = std::stoi(section.substr(prefix.size()), &used);
  const auto rest = section.substr(prefix.size() + used);
  kernel = rest.empty() ? "" : rest.substr(1);
  return bank;
}

}  // namespace

Cubin read_cubin(std::string_view file, const std::string& path) {
  const Reader r(file, path);
  check_kind(r, file);
  Cubin out;
  const auto flags = r.at<std::uint32_t>(48);
  out.abi = r.at<std::uint8_t>(8);
  // the architecture moved when CUDA 12.8 raised the ABI to 8
  out.sm = int(out.abi >= 8 ? flags >> 8 & 0xff : flags & 0xff);
  if (r.at<std::uint16_t>(56))
    (void)r.part(r.at<std::uint64_t>(32), 56ull * r.at<std::uint16_t>(56));  // segments
  const auto sections = sections_of(r);
  const auto functions = functions_of(r, sections);
  std::map<std::string, std::size_t> by_name;
  for (const auto& s : sections)
    if (s.name.rfind(".text.", 0) == 0) {
      (void)r.part(s.offset, s.size);
      CubinKernel k;
      k.name = s.name.substr(6), k.code_bytes = s.size, k.code_offset = s.offset,
      k.instructions = s.size / 16;
      if (out.abi < 8 && s.info >> 24) k.registers = s.info >> 24;
      by_name[k.name] = out.kernels.size();
      out.kernels.push_back(std::move(k));
    }
  const auto find = [&](const std::string& name) {
    const auto at = by_name.find(name);
    return at == by_name.end() ? nullptr : &out.kernels[at->second];
  };
  for (const auto& s : sections) {
    std::string kernel;
    if (const int bank = constant_bank(s.name, kernel); bank >= 0) {
      if (kernel.empty())
        out.constant_banks[bank] += s.size;
      else if (auto* k = find(kernel))
        k->constant_banks[bank] += s.size;
    } else if (s.name == ".nv.global" || s.name == ".nv.global.init") {
      out.global_bytes += s.size;
    } else if (s.name.rfind(".nv.shared.", 0) == 0) {
      if (auto* k = find(s.name.substr(11))) {
        k->shared_reserved = out.sm >= 90 ? std::min(kReservedShared, s.size) : 0;
        k->shared_bytes = s.size - k->shared_reserved;
      }
    } else if (s.name == ".nv.info") {
      attributes(r, s, [&](std::uint8_t attribute, std::uint8_t, std::string_view v) {
        const auto f = functions.find(word(v, 0));
        auto* k = f == functions.end() || v.size() < 8 ? nullptr : find(f->second);
        if (!k) return;
        if (attribute == kRegisters) k->registers = word(v, 1);
        if (attribute == kFrameSize) k->stack_bytes = word(v, 1);
      });
    } else if (s.name.rfind(".nv.info.", 0) == 0) {
      if (auto* k = find(s.name.substr(9)))
        attributes(r, s, [&](std::uint8_t attribute, std::uint8_t, std::string_view v) {
          read_info(*k, attribute, v);
        });
    }
  }
  return out;
}

std::string_view memory_opcode(std::uint64_t instruction) {
  switch (instruction & 0xfff) {
    case 0x981:
      return "LDG";
    case 0x986:
      return "STG";
    case 0x984:
      return "LDS";
    case 0x388:
    case 0x988:  // with an address in uniform registers
      return "STS";
    case 0x983:
      return "LDL";
    case 0x387:
      return "STL";
    default:
      return {};
  }
}

SassMix sass_mix(std::string_view listing) {
  SassMix out;
  std::string kernel;
  for (const auto raw : text::split(listing, '\n')) {
    std::string_view line = text::trim(raw);
    if (line.rfind(".text.", 0) == 0 && line.back() == ':') {
      kernel = line.substr(6, line.size() - 7);
      continue;
    }
    if (kernel.empty() || line.rfind("/*", 0) != 0) continue;
    const auto close = line.find("*/");
    if (close == std::string_view::npos || line.find(';') == std::string_view::npos) continue;
    line = text::trim(line.substr(close + 2));
    if (!line.empty() && line[0] == '{') line = text::trim(line.substr(1));
    if (!line.empty() && line[0] == '@') line = text::trim(line.substr(line.find(' ')));
    const auto end = line.find_first_of(" .;");
    if (end != std::string_view::npos && end > 0) ++out[kernel][std::string(line.substr(0, end))];
  }
  return out;
}

std::string_view sass_group(std::string_view op) {
  const auto one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), op) != names.end();
  };
  const auto begins = [&](std::string_view p) { return op.substr(0, p.size()) == p; };
  if (one_of({"LDL", "STL"})) return "memory, local (spills and arrays)";
  if (one_of({"LDG", "STG", "LD", "ST", "LDGSTS", "ATOMG", "ATOM", "RED", "REDG"})) return "memory, global";
  if (one_of({"LDS", "STS", "LDSM", "STSM", "ATOMS"})) return "memory, shared";
  if (begins("UTMA") || begins("UBLKCP") || begins("UBLKRED")) return "memory, bulk and tensor copies";
  if (one_of({"LDC", "LDCU", "ULDC"})) return "memory, constant";
  if (begins("HMMA") || begins("IMMA") || begins("DMMA") || begins("QMMA") || begins("OMMA") ||
      begins("HGMMA") || begins("IGMMA") || begins("QGMMA") || begins("BGMMA") || begins("UTC"))
    return "tensor cores";
  if (one_of({"FFMA", "FMUL", "FADD", "FFMA2", "FADD2", "FMUL2", "FSETP", "FSEL", "FMNMX", "FMNMX3", "MUFU"}))
    return "fp32";
  if (one_of({"DFMA", "DMUL", "DADD", "DSETP"})) return "fp64";
  if (begins("HFMA") || begins("HADD") || begins("HMUL") || begins("HMNMX") || begins("HSET"))
    return "fp16 and bf16";
  if (one_of({"BRA", "EXIT", "RET", "CALL", "BRX", "JMP", "BSSY", "BSYNC", "WARPSYNC", "BREAK", "BMOV",
              "YIELD"}))
    return "control";
  if (one_of({"BAR", "SYNCS", "DEPBAR", "LDGDEPBAR", "MEMBAR", "ERRBAR", "WARPGROUP", "FENCE", "UCGABAR_ARV",
              "UCGABAR_WAIT"}))
    return "synchronisation";
  if (one_of({"SHFL", "VOTE", "VOTEU", "MATCH", "REDUX", "CREDUX"})) return "between lanes";
  if (begins("F2") || begins("I2F") || begins("I2I")) return "conversions";
  if (one_of({"NOP"})) return "padding";
  return "integer, moves and other";
}

}  // namespace cgp::profile
