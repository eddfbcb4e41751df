// SPDX-License-Identifier: Apache-2.0
#pragma once
// The --arg language of `cgp run FILE.ptx` (docs/cli.md, "Arguments"): each text is one kernel parameter, in
// order. All of them become a Spec with one launch, which spec_run.h runs.
//
//   in:f32:x.npy            a buffer from a file (.npy or raw), read only
//   in:f32:1024:JSON        a buffer of 1024 elements from a generator: zero, {"iota": [0, 1]}, ...
//   inout:f32:x.npy[=FILE]  a buffer from a file; the result goes to FILE, else back to the file
//   out:f32:1024[=FILE]     a buffer to write; saved to FILE
//   scratch:u8:4096         a buffer nobody compares, uninitialised
//   buf:0+256               256 bytes past the start of the buffer of argument 0
//   u32:7  f32:1.5  f32:0x3fc00000   a scalar: a number, or its bits
//   {"struct": ...}  {"tensormap": ...}   as in a spec; buffers are named by argument number
#include <string>
#include <string_view>
#include <vector>

#include "cgp/spec/spec.h"

namespace cgp::spec {

/// Appends a buffer and/or a parameter of spec.launches.at(0). `index` is the argument's position. Throws
/// ArgumentError (ParseError inside JSON) that quotes the argument.
void add_argument(Spec& spec, std::string_view text, std::size_t index);

/// "4", "4,2", "4,2,1" -> Dim3; `option` names it in errors.
runtime::Dim3 parse_extents(std::string_view text, std::string_view option);

}  // namespace cgp::spec
