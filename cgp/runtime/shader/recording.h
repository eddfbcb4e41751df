// SPDX-License-Identifier: Apache-2.0
#pragma once
// Records what kernels do on a WebGPU device, for a program that does it elsewhere (cgp web: a browser): the shaders, the
// launches with what they bind, and the memory before the first of them. Meanwhile the emulator runs the kernels, so that their
// results are there to compare with.
#include <array>
#include <memory>
#include <vector>

#include "cgp/runtime/device.h"
#include "cgp/shader/shader.h"

namespace cgp::runtime {

struct Recording {
  /// One allocation.
  struct Memory {
    std::uint64_t address = 0, bytes = 0;
    std::vector<std::byte> start;  ///< before the first command; empty: zeros, or nobody wrote it
    std::vector<std::byte>
        end;  ///< behind the last, as the emulator has it; empty: freed meanwhile, or nothing ran
  };
  struct Binding {
    std::uint32_t binding = 0;
    int memory = -1;  ///< all of it; -1: a null pointer, which takes any buffer
  };
  struct Command {
    enum class Kind : std::uint8_t { dispatch, write, copy } kind = Kind::dispatch;
    int shader = -1;  ///< dispatch: in `shaders`
    std::array<std::uint32_t, 3> grid{};
    std::vector<std::byte> block;   ///< dispatch: the uniform buffer at binding 0; write: the data
    std::vector<Binding> bindings;  ///< dispatch
    int to = -1, from = -1;         ///< write, copy: in `memory`
    std::uint64_t to_offset = 0, from_offset = 0, bytes = 0;
  };
  std::vector<Memory> memory;
  std::vector<shader::Shader> shaders;
  std::vector<Command> commands;
};

class RecordingBackend;

/// Kernels are chosen as for sm_75 with WebGPU's usual limits: blocks of `threads` threads (every WebGPU device has 256, most 1024) with
/// 32 KiB of shared memory. What cannot be a shader throws Unsupported, as on a WebGPU device.
class Recorder {
 public:
  enum class Runs : std::uint8_t {
    everything,
    nothing  ///< launches are recorded alone: for programs that the emulator would take too long for
  };
  explicit Recorder(Runs runs = Runs::everything, std::uint32_t threads = 1024);
  ~Recorder();
  const Device& device() const { return device_; }
  /// From here on launches, fills and copies on the device are commands. Unsupported is thrown by copies to the host, which a
  /// recording cannot have, and by writes that are no multiples of 4 bytes.
  void begin();
  /// Commands so far.
  std::size_t commands() const;
  Recording end();

 private:
  std::shared_ptr<RecordingBackend> backend_;
  Device device_;
};

}  // namespace cgp::runtime
