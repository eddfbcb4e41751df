// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/sampling/cpu_profile.h"

#include <cxxabi.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <set>
#include <tuple>

namespace cgp::profile {
namespace {

constexpr char kPython[] = "py::";  // what CPython and libcgp_sample.so write
constexpr const char* kUnknown = "[unknown]";
constexpr std::size_t kLines = 20;  // of each function

/// Without what stands behind a name at the level of its scope: arguments, const, [clone .isra.0].
std::string without_arguments(const std::string& name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)", kCall = "operator()";
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto here = std::string_view(name).substr(i);
    if (here.rfind("operator", 0) == 0) {  // operator<, operator->, operator()
      i += here.rfind(kCall, 0) == 0 ? kCall.size() : 8;
      while (i < name.size() && std::string_view("<>=-").find(name[i]) != std::string_view::npos) ++i;
      if (i >= name.size()) break;
    }
    if (std::string_view(name).substr(i).rfind(kAnonymous, 0) == 0) {
      i += kAnonymous.size() - 1;
      continue;
    }
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (depth == 0 && i > 0 && name[i] == '(') return name.substr(0, i);
  }
  return name.substr(0, name.find(" [clone"));
}

/// Without the type of the result, which only templates have in their name.
std::string without_result(const std::string& name) {
  if (name.find("operator") != name.npos) return name;
  int depth = 0;
  std::size_t from = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' || name[i] == '(' ? 1 : name[i] == '>' || name[i] == ')' ? -1 : 0;
    if (depth == 0 && name[i] == ' ') from = i + 1;
  }
  return name.substr(from);
}

std::string demangled(std::string_view mangled) {
  const std::string name(mangled);
  if (name.rfind("_Z", 0) != 0) return name;
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string out = status == 0 && text ? without_result(without_arguments(text)) : name;
  std::free(text);
  return out;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Names by the address that they begin at: what /proc/kallsyms and perf-PID.map hold.
struct Names {
  struct One {
    std::uint64_t end = 0;
    std::string name;
  };
  std::map<std::uint64_t, One> all;
  std::string at(std::uint64_t address) const {
    const auto next = all.upper_bound(address);
    if (next == all.begin()) return {};
    const auto& [begin, one] = *std::prev(next);
    return address < one.end ? one.name : std::string();
  }
};

std::uint64_t hex(std::string_view s) {
  std::uint64_t v = 0;
  std::from_chars(s.data(), s.data() + s.size(), v, 16);
  return v;
}

/// "address size name" a line.
Names names_of_jit(std::uint32_t process) {
  Names names;
  std::ifstream file("/tmp/perf-" + std::to_string(process) + ".map");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(' '), second = line.find(' ', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const auto begin = hex(std::string_view(line).substr(0, first));
    names.all[begin] = {begin + hex(std::string_view(line).substr(first + 1, second - first - 1)),
                        line.substr(second + 1)};
  }
  return names;
}

/// "address type name" a line; all addresses are 0 where they are secret.
Names names_of_kernel() {
  Names names;
  std::ifstream file("/proc/kallsyms");
  for (std::string line; std::getline(file, line);) {
    const auto begin = hex(std::string_view(line).substr(0, 16));
    if (begin == 0 || line.size() < 20 || std::string_view("tTwW").find(line[17]) == std::string_view::npos)
      continue;
    names.all[begin] = {~0ull, line.substr(19, line.find_first_of(" \t", 19) - 19)};
  }
  return names;
}

/// The files between the program's launch and us.
bool of_driver(const std::string& module) {
  for (const char* name : {"libcgp_", "libcupti", "libcuda.so", "libfake_cupti"})
    if (module.rfind(name, 0) == 0) return true;
  return false;
}

/// Functions of frames, each file and table read once.
class Symbols {
 public:
  explicit Symbols(const CpuRecording& r) : recording_(r), files_(r.modules.size()) {}

  const std::pair<std::string, std::string>& function(std::uint32_t process, const CpuFrame& f) {
    const std::string& module = recording_.modules[f.module];
    const bool memory = module == kMemoryModule;  // the only frames whose meaning depends on the process
    const auto [at, fresh] = known_.try_emplace({memory ? process : 0, f});
    if (!fresh) return at->second;
    std::string name;
    if (memory) {
      const auto [jit, first] = jit_.try_emplace(process);
      if (first) jit->second = names_of_jit(process);
      name = jit->second.at(f.address);
    } else if (module == kKernelModule) {
      if (!kernel_read_) kernel_ = names_of_kernel(), kernel_read_ = true;
      name = kernel_.at(f.address);
    } else if (const ElfFile* file = file_of(f.module)) {
      name = demangled(file->function_at(file->address_of(f.address)));
    }
    if (name.empty()) name = module == kKernelModule || module == "[vdso]" ? module : kUnknown;
    return at->second = {name, last_part(module)};
  }

  /// Where it lies in its file, and what of it; nothing where it has no file.
  void place(const CpuFrame& frame, std::uint64_t samples, HotFunction& f) {
    const ElfFile* file = file_of(frame.module);
    if (!file) return;
    const auto address = file->address_of(frame.address);
    f.path = recording_.modules[frame.module];
    std::tie(f.begin, f.end) = file->range_at(address);
    f.instructions[address] += samples;
  }

  /// Of addresses in one module.
  std::map<std::uint64_t, SourceLine> lines(std::uint32_t module, const std::set<std::uint64_t>& offsets) {
    std::map<std::uint64_t, SourceLine> out;
    const ElfFile* file = file_of(module);
    if (!file) return out;
    std::map<std::uint64_t, std::uint64_t> offset_of;
    for (auto o : offsets) offset_of[file->address_of(o)] = o;
    std::vector<std::uint64_t> addresses;
    for (const auto& [address, offset] : offset_of) addresses.push_back(address);
    for (const auto& [address, line] : file->lines_at(addresses)) out[offset_of[address]] = line;
    return out;
  }

 private:
  const ElfFile* file_of(std::uint32_t module) {
    auto& [read, file] = files_[module];
    if (!read && recording_.modules[module][0] == '/') file = ElfFile::open(recording_.modules[module]);
    read = true;
    return file.get();
  }

  const CpuRecording& recording_;
  std::vector<std::pair<bool, std::unique_ptr<ElfFile>>> files_;
  std::map<std::pair<std::uint32_t, CpuFrame>, std::pair<std::string, std::string>> known_;
  std::map<std::uint32_t, Names> jit_;
  Names kernel_;
  bool kernel_read_ = false;
};

}  // namespace

CpuProfile analyse(const CpuRecording& r) {
  CpuProfile p;
  p.absent = r.absent, p.rate = r.rate, p.kernel = r.kernel, p.timer = r.timer, p.samples = r.samples,
  p.lost = r.lost, p.cut = r.cut;
  Symbols symbols(r);
  using Key = std::pair<std::string, std::string>;
  std::map<Key, HotFunction> functions;
  std::map<std::string, PythonFunction> python;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> threads;
  std::map<std::uint32_t, std::map<std::uint64_t, std::pair<Key, std::uint64_t>>> leaves;  // by module
  const auto folded_of = [&](const CpuStack& stack, std::ptrdiff_t without = 0) {
    const auto thread = r.names.find(stack.thread);
    std::string folded = thread == r.names.end() ? "[thread]" : thread->second;
    for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend() - without; ++frame) {
      const Key& key = symbols.function(stack.process, *frame);
      std::string name = key.first == kUnknown ? "[" + key.second + "]" : key.first;
      std::replace(name.begin(), name.end(), ';', ':');
      folded += ";" + name;
    }
    return folded;
  };
  p.waits_watched = r.waits_watched, p.waits_absent = r.waits_absent, p.displaced_ns = r.displaced_ns;
  for (const auto& [correlation, stack] : r.launches) {
    const auto own = std::find_if(stack.frames.begin(), stack.frames.end(), [&](const CpuFrame& f) {
      return !of_driver(symbols.function(stack.process, f).second);
    });
    p.launches.push_back({stack.process, correlation, folded_of(stack, own - stack.frames.begin())});
  }
  for (const auto& [stack, ns] : r.waits) p.waits[folded_of(stack)] += ns;
  for (const auto& [stack, count] : r.stacks) {
    std::set<Key> seen;
    for (const auto& frame : stack.frames)
      if (const Key& key = symbols.function(stack.process, frame); seen.insert(key).second)
        functions[key].total += count;
    std::set<std::string> of_python;
    for (const auto& frame : stack.frames) {
      const std::string& name = symbols.function(stack.process, frame).first;
      if (name.rfind(kPython, 0) != 0) continue;
      if (of_python.empty()) python[name].self += count;
      if (of_python.insert(name).second) python[name].total += count;
    }
    const CpuFrame& leaf = stack.frames[0];
    const Key& key = symbols.function(stack.process, leaf);
    functions[key].self += count;
    symbols.place(leaf, count, functions[key]);
    auto& at = leaves[leaf.module][leaf.address];
    at.first = key, at.second += count;
    threads[{stack.process, stack.thread}] += count;
    p.folded[folded_of(stack)] += count;
  }
  std::map<Key, std::map<SourceLine, std::uint64_t>> lines;
  for (const auto& [module, addresses] : leaves) {
    std::set<std::uint64_t> offsets;
    for (const auto& [address, of] : addresses) offsets.insert(address);
    for (const auto& [address, line] : symbols.lines(module, offsets)) {
      const auto& [key, count] = addresses.at(address);
      lines[key][line] += count;
    }
  }
  for (auto& [key, f] : functions) {
    f.name = key.first, f.module = key.second;
    for (const auto& [line, count] : lines[key]) f.lines.push_back({line, count});
    std::stable_sort(f.lines.begin(), f.lines.end(),
                     [](const HotLine& a, const HotLine& b) { return a.samples > b.samples; });
    if (f.lines.size() > kLines) f.lines.resize(kLines);
    p.functions.push_back(std::move(f));
  }
  std::stable_sort(p.functions.begin(), p.functions.end(), [](const HotFunction& a, const HotFunction& b) {
    return a.self != b.self ? a.self > b.self : a.total > b.total;
  });
  for (auto& [name, f] : python) {  // "py::C.f:/a.py"
    const auto file = name.find(':', sizeof kPython);
    f.name = name.substr(sizeof kPython - 1, file - (sizeof kPython - 1));
    if (file != name.npos) f.file = name.substr(file + 1);
    p.python.push_back(std::move(f));
  }
  std::stable_sort(p.python.begin(), p.python.end(), [](const PythonFunction& a, const PythonFunction& b) {
    return a.self != b.self ? a.self > b.self : a.total > b.total;
  });
  for (const auto& [ids, count] : threads) {
    const auto name = r.names.find(ids.second);
    p.threads.push_back({ids.first, ids.second, name == r.names.end() ? "" : name->second, count});
  }
  std::stable_sort(p.threads.begin(), p.threads.end(),
                   [](const HotThread& a, const HotThread& b) { return a.samples > b.samples; });
  return p;
}

}  // namespace cgp::profile
