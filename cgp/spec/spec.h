// SPDX-License-Identifier: Apache-2.0
#pragma once
// A launch spec: how to run a PTX file and what must come out (docs/cli.md, "Launch specs"). Read from JSON
// by load_spec(), or built from command-line arguments by args.h; run by spec_run.h.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cgp/base/dtype.h"
#include "cgp/runtime/launch.h"
#include "cgp/runtime/tensor_map.h"
#include "cgp/spec/compare.h"
#include "cgp/spec/generate.h"

namespace cgp::spec {

using runtime::Dim3;

enum class Role : std::uint8_t {
  in,      ///< never written: a kernel that changes it fails the case
  out,     ///< holds a5a5... bytes at first, compared when there is an expectation
  inout,   ///< initialised and compared
  scratch  ///< not compared
};
std::string_view name(Role r);

struct BufferSpec {
  std::string name;
  DType dtype = DType::f32;
  std::uint64_t count = 0;
  Role role = Role::in;
  std::optional<Init> init;            ///< absent: the role's default
  std::optional<std::uint32_t> crc32;  ///< of the initial bytes
  Compare compare;
  std::optional<Init> expected;
  std::string output_path;           ///< where to save it afterwards; empty: nowhere
  std::vector<std::uint64_t> shape;  ///< of the saved array; empty: {count}

  std::uint64_t bytes() const { return count * std::uint64_t(cgp::bytes(dtype)); }
};

/// A variable of the module that is written before the first launch.
struct SymbolSpec {
  std::string name;
  DType dtype = DType::f32;
  std::uint64_t count = 0;
  Init init;
};

/// The device address of a buffer, stored into a parameter or a struct field.
struct AddressOf {
  std::size_t buffer = 0;    ///< index into Spec::buffers
  std::uint64_t offset = 0;  ///< bytes past its start
  std::uint32_t at = 0;      ///< where in the parameter the 8 bytes go
};

struct ParamSpec {
  enum class Kind : std::uint8_t { address, scalar, structure, tensor_map };
  Kind kind = Kind::scalar;
  std::string name;
  DType dtype = DType::u32;          ///< scalar
  std::vector<std::uint8_t> bytes;   ///< scalar or structure, addresses still zero
  std::vector<AddressOf> addresses;  ///< one for address and tensor_map; any number for structure
  runtime::TensorMapSpec map;
};

struct LaunchSpec {
  std::string entry;
  Dim3 grid, block, cluster{1, 1, 1};
  std::uint32_t dynamic_smem = 0;  ///< bytes
  bool cooperative = false;
  std::vector<ParamSpec> params;
};

struct CounterSpec {
  std::size_t launch = 0;
  std::map<std::string, std::uint64_t> values;  ///< names as emu::flatten has them
};

/// Broken kernels: the diagnosis that a good tool gives.
struct Expectation {
  std::string cls;
  std::vector<std::string> also, ops;
  std::optional<std::string> buffer;
  std::optional<std::int64_t> byte_offset;
  std::optional<Dim3> thread, block;
  std::string note;
  bool accepts(const std::string& found) const;
};

struct Spec {
  std::string path;      ///< of the JSON, or what stands for it in messages
  std::string folder;    ///< relative files are looked up here
  std::string ptx_path;  ///< the PTX to load
  std::string ptx;       ///< its text where it has been read already; else run_spec() reads it
  std::string target;    ///< "compute_90a"; empty: as the PTX says
  std::vector<SymbolSpec> symbols;
  std::vector<BufferSpec> buffers;
  std::vector<LaunchSpec> launches;
  std::vector<CounterSpec> counters;
  std::map<std::string, std::uint64_t> opcodes;  ///< static count of each full opcode
  std::optional<Expectation> expect;
  std::vector<std::string> warnings;  ///< fields that mean nothing to this version

  std::optional<std::size_t> find_buffer(const std::string& name) const;
};

class Node;

/// Throws ParseError with the JSON path, line and column of what is wrong. `ptx_path` empty: the .ptx beside
/// it.
Spec load_spec(const std::string& path, const std::string& ptx_path = {});
Spec parse_spec(const std::string& text, const std::string& path, const std::string& ptx_path = {});
/// One entry of params[]; buffers are looked up in `spec` by name.
ParamSpec parse_param(const Node& node, Spec& spec);

}  // namespace cgp::spec
