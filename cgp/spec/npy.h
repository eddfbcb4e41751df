// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays in files: NumPy's .npy (format versions 1 to 3, little-endian, C order) and raw bytes (any other
// suffix). bf16, e4m3 and e5m2, which NumPy does not know, are written as the void types V2 and V1 that
// ml_dtypes uses; they are read from V or unsigned integers of their size when the caller asks for them.
#include <optional>
#include <string>
#include <string_view>

#include "cgp/spec/host_array.h"

namespace cgp::spec {

/// Reads `content` of a .npy file. `want` is the element type the caller needs (absent: as the file says).
/// Throws ParseError for anything but a complete little-endian C-order array of a known element type, and
/// ArgumentError when the type is not `want`. `path` is for messages only.
HostArray parse_npy(std::string_view content, const std::string& path, std::optional<DType> want = {});
/// The bytes of a version 1.0 .npy file (2.0 when the shape needs a longer header).
std::string format_npy(const HostArray& array);

/// Reads a .npy file, or a raw file of `want` (required then). `count`: elements that the caller needs.
HostArray read_array(const std::string& path, std::optional<DType> want,
                     std::optional<std::uint64_t> count = {});
/// Writes .npy or raw bytes, chosen by the suffix.
void write_array(const std::string& path, const HostArray& array);

}  // namespace cgp::spec
