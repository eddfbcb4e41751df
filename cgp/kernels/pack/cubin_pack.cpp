// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/pack/cubin_pack.h"

#include <algorithm>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/hash.h"
#include "cgp/base/text.h"

namespace cgp::kernels {
namespace {

// A block is a header, the entries in the order of their hashes, then the cubins. Little-endian, as every
// machine with a GPU is.
struct Header {
  char magic[8];
  std::uint64_t count;
};
struct Entry {
  std::uint64_t a, b, offset, size;
};
constexpr char kMagic[8] = {'C', 'G', 'P', 'P', 'A', 'C', 'K', '1'};

std::pair<std::uint64_t, std::uint64_t> key_of(std::string_view ptx, std::string_view arch) {
  Hash128 h;
  h.add(ptx);
  h.add(arch);
  return {h.a, h.b};
}

CubinPack& pack() {
  static CubinPack p;
  return p;
}

}  // namespace

void CubinPackWriter::add(std::string_view ptx, std::string_view arch, std::string cubin) {
  cubins_[key_of(ptx, arch)] = std::move(cubin);
}

std::string CubinPackWriter::bytes() const {
  Header h{{}, cubins_.size()};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  std::string out(reinterpret_cast<const char*>(&h), sizeof h);
  std::uint64_t at = sizeof(Header) + cubins_.size() * sizeof(Entry);
  const auto aligned = [](std::uint64_t v) { return (v + 63) / 64 * 64; };
  for (const auto& [key, cubin] : cubins_) {
    at = aligned(at);
    const Entry e{key.first, key.second, at, cubin.size()};
    out.append(reinterpret_cast<const char*>(&e), sizeof e);
    at += cubin.size();
  }
  for (const auto& [key, cubin] : cubins_) {
    out.resize(aligned(out.size()));
    out.append(cubin);
  }
  return out;
}

CubinPack::CubinPack(std::span<const std::byte> bytes) : bytes_(bytes) {
  const auto need = [](bool ok) {
    if (!ok) throw ArgumentError("the embedded machine code is not a pack of this version");
  };
  Header h{};
  need(bytes.size() >= sizeof h);
  std::memcpy(&h, bytes.data(), sizeof h);
  need(std::memcmp(h.magic, kMagic, sizeof kMagic) == 0);
  need(h.count <= (bytes.size() - sizeof h) / sizeof(Entry));
  for (std::uint64_t i = 0; i < h.count; ++i) {
    Entry e{};
    std::memcpy(&e, bytes.data() + sizeof h + i * sizeof e, sizeof e);
    need(e.offset <= bytes.size() && e.size <= bytes.size() - e.offset);
  }
  count_ = std::size_t(h.count);
}

std::optional<std::string_view> CubinPack::find(std::string_view ptx, std::string_view arch) const {
  if (!count_) return std::nullopt;
  const auto key = key_of(ptx, arch);
  const auto entry = [&](std::size_t i) {
    Entry e{};
    std::memcpy(&e, bytes_.data() + sizeof(Header) + i * sizeof e, sizeof e);
    return e;
  };
  std::size_t low = 0, high = count_;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    const Entry e = entry(middle);
    if (std::pair(e.a, e.b) < key)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == count_) return std::nullopt;
  const Entry e = entry(low);
  if (std::pair(e.a, e.b) != key) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes_.data()) + e.offset, e.size);
}

const CubinPack& embedded_cubins() { return pack(); }
void set_embedded_cubins(std::span<const std::byte> bytes) {
  pack() = bytes.empty() ? CubinPack() : CubinPack(bytes);
}

void attach_embedded(runtime::KernelImage& image, std::string_view arch) {
  if (const auto cubin = pack().find(*image.ptx, arch))
    image.cubins.push_back({std::string(arch), std::string(*cubin)});
}

}  // namespace cgp::kernels
