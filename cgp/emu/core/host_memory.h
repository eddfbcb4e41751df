// SPDX-License-Identifier: Apache-2.0
#pragma once
// Plain accesses of emulated programs to memory that blocks on other host threads may use at the same time.
// When the emulated program races, so would the host: on the machines we run on, plain moves of aligned words
// do what a GPU does. ThreadSanitizer cannot know that: in its builds the same accesses are relaxed atomics,
// so that what it reports is a fault of the emulator.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SANITIZE_THREAD__)
#define CGP_EMU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CGP_EMU_TSAN 1
#endif
#endif

namespace cgp::emu {

#if defined(CGP_EMU_TSAN)
inline constexpr bool kThreadSanitizer = true;
template <class T>
T load_plain(const std::byte* from) {
  T v;
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(T) == 0) {
    __atomic_load(reinterpret_cast<const T*>(from), &v, __ATOMIC_RELAXED);
    return v;
  }
  auto* to = reinterpret_cast<std::byte*>(&v);
  for (std::size_t i = 0; i < sizeof(T); ++i) __atomic_load(from + i, to + i, __ATOMIC_RELAXED);
  return v;
}
template <class T>
void store_plain(std::byte* to, T v) {
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(T) == 0)
    return __atomic_store(reinterpret_cast<T*>(to), &v, __ATOMIC_RELAXED);
  auto* from = reinterpret_cast<std::byte*>(&v);
  for (std::size_t i = 0; i < sizeof(T); ++i) __atomic_store(to + i, from + i, __ATOMIC_RELAXED);
}
template <class Move>
void by_words(std::uintptr_t at, std::size_t bytes, Move&& move) {
  for (std::size_t i = 0; i < bytes;) {
    const std::size_t n = (at + i) % 8 == 0 && bytes - i >= 8 ? 8 : 1;
    move(i, n);
    i += n;
  }
}
/// Device memory to memory of one host thread.
inline void copy_from_device(void* to, const std::byte* from, std::size_t bytes) {
  auto* out = static_cast<std::byte*>(to);
  by_words(reinterpret_cast<std::uintptr_t>(from), bytes, [&](std::size_t i, std::size_t n) {
    const std::uint64_t v =
        n == 8 ? load_plain<std::uint64_t>(from + i) : std::uint64_t(load_plain<std::uint8_t>(from + i));
    std::memcpy(out + i, &v, n);
  });
}
/// Memory of one host thread to device memory.
inline void copy_to_device(std::byte* to, const void* from, std::size_t bytes) {
  const auto* in = static_cast<const std::byte*>(from);
  by_words(reinterpret_cast<std::uintptr_t>(to), bytes, [&](std::size_t i, std::size_t n) {
    std::uint64_t v = 0;
    std::memcpy(&v, in + i, n);
    if (n == 8)
      store_plain<std::uint64_t>(to + i, v);
    else
      store_plain<std::uint8_t>(to + i, std::uint8_t(v));
  });
}
#else
inline constexpr bool kThreadSanitizer = false;
template <class T>
T load_plain(const std::byte* from) {
  T v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class T>
void store_plain(std::byte* to, T v) {
  std::memcpy(to, &v, sizeof v);
}
inline void copy_from_device(void* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
inline void copy_to_device(std::byte* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

}  // namespace cgp::emu
