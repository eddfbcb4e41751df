// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/target.h"

#include <charconv>

#include "cgp/base/text.h"

namespace cgp::ptx {
namespace {

// Chips that run each other's `f` code share a family; the number is that of its first member.
int family_of(int sm) {
  if (sm == 103) return 100;
  if (sm == 121) return 120;
  return sm;
}

}  // namespace

std::optional<Target> parse_target(std::string_view s) {
  if (s.substr(0, 3) != "sm_" || s.size() < 5 || s.size() > 7) return std::nullopt;
  Target t;
  auto r = std::from_chars(s.data() + 3, s.data() + s.size(), t.sm);
  if (r.ec != std::errc() || t.sm < 10 || s[3] == '0') return std::nullopt;
  if (r.ptr != s.data() + s.size()) t.suffix = *r.ptr++;
  if (r.ptr != s.data() + s.size() || (t.suffix != 0 && t.suffix != 'a' && t.suffix != 'f'))
    return std::nullopt;
  return t;
}

std::string name(Target t) {
  std::string s = text::cat("sm_", t.sm);
  if (t.suffix) s.push_back(t.suffix);
  return s;
}

const std::vector<KnownTarget>& known_targets() {
  static const std::vector<KnownTarget> all = {
      {{30, 0}, {3, 0}},    {{32, 0}, {4, 0}},    {{35, 0}, {3, 1}},    {{37, 0}, {4, 1}},
      {{50, 0}, {4, 0}},    {{52, 0}, {4, 1}},    {{53, 0}, {4, 2}},    {{60, 0}, {5, 0}},
      {{61, 0}, {5, 0}},    {{62, 0}, {5, 0}},    {{70, 0}, {6, 0}},    {{72, 0}, {6, 1}},
      {{75, 0}, {6, 3}},    {{80, 0}, {7, 0}},    {{86, 0}, {7, 1}},    {{87, 0}, {7, 4}},
      {{88, 0}, {9, 0}},    {{89, 0}, {7, 8}},    {{90, 0}, {7, 8}},    {{90, 'a'}, {8, 0}},
      {{100, 0}, {8, 6}},   {{100, 'a'}, {8, 6}}, {{100, 'f'}, {8, 8}}, {{103, 0}, {8, 8}},
      {{103, 'a'}, {8, 8}}, {{103, 'f'}, {8, 8}}, {{110, 0}, {9, 0}},   {{110, 'a'}, {9, 0}},
      {{110, 'f'}, {9, 0}}, {{120, 0}, {8, 7}},   {{120, 'a'}, {8, 7}}, {{120, 'f'}, {8, 8}},
      {{121, 0}, {8, 8}},   {{121, 'a'}, {8, 8}}, {{121, 'f'}, {8, 8}}};
  return all;
}

std::optional<Version> lowest_version(Target t) {
  for (const KnownTarget& k : known_targets())
    if (k.target == t) return k.since;
  return std::nullopt;
}

bool version_exists(Version v) {
  constexpr int kLastMinor[] = {-1, 5, 3, 2, 3, 1, 5, 8, 8, 0};
  return v.major >= 1 && v.major <= 9 && v.minor >= 0 && v.minor <= kLastMinor[v.major];
}

bool runs_on(Target module, Target device) {
  switch (module.suffix) {
    case 'a':
      return module.sm == device.sm && device.suffix == 'a';
    case 'f':
      // Family code runs on the chips of the family that are not older; as plain binaries those carry any
      // suffix.
      return family_of(module.sm) == family_of(device.sm) && device.sm >= module.sm;
    default:
      return device.sm >= module.sm;
  }
}

bool satisfies(Target t, const TargetCondition& c) {
  if (c.last) return t.sm >= c.sm && t.sm <= c.last;
  switch (c.suffix) {
    case 'a':
      return t.sm == c.sm && t.suffix == 'a';
    case 'f':
      return t.suffix != 0 && family_of(t.sm) == family_of(c.sm) && t.sm >= c.sm;
    default:
      return t.sm >= c.sm;
  }
}

std::string name(const TargetCondition& c) {
  if (c.last) return text::cat("sm_", c.sm, " to sm_", c.last);
  if (c.suffix == 'a') return text::cat("sm_", c.sm, "a");
  if (c.suffix == 'f') return text::cat("sm_", c.sm, "f or a newer a/f target of its family");
  return text::cat("sm_", c.sm, " or newer");
}

const ChipLimits* chip_limits(int sm) {
  constexpr std::uint32_t kKiB = 1024;
  //                        sm  warps blocks regs   /thread gran sub  shared/SM   /block      reserve
  static const ChipLimits all[] = {
      {75, 32, 16, 65536, 255, 256, 4, 64 * kKiB, 64 * kKiB, 0, 256},
      {80, 64, 32, 65536, 255, 256, 4, 164 * kKiB, 163 * kKiB, 1024},
      {86, 48, 16, 65536, 255, 256, 4, 100 * kKiB, 99 * kKiB, 1024},
      {87, 48, 16, 65536, 255, 256, 4, 164 * kKiB, 163 * kKiB, 1024},
      {88, 48, 16, 65536, 255, 256, 4, 100 * kKiB, 99 * kKiB, 1024},
      {89, 48, 24, 65536, 255, 256, 4, 100 * kKiB, 99 * kKiB, 1024},
      {90, 64, 32, 65536, 255, 256, 4, 228 * kKiB, 227 * kKiB, 1024},
      {100, 64, 32, 65536, 255, 256, 4, 228 * kKiB, 227 * kKiB, 1024},
      {103, 64, 32, 65536, 255, 256, 4, 228 * kKiB, 227 * kKiB, 1024},
      {110, 48, 24, 65536, 255, 256, 4, 228 * kKiB, 227 * kKiB, 1024},
      {120, 48, 24, 65536, 255, 256, 4, 100 * kKiB, 99 * kKiB, 1024},
      {121, 48, 24, 65536, 255, 256, 4, 100 * kKiB, 99 * kKiB, 1024},
  };
  for (const ChipLimits& c : all)
    if (c.sm == sm) return &c;
  return nullptr;
}

}  // namespace cgp::ptx
