// SPDX-License-Identifier: Apache-2.0
#pragma once
// Profiles from files of any origin: our own, reports of ncu (.ncu-rep; CSV of the pages raw, details,
// source) and of nsys (.sqlite; CSV of cuda_gpu_trace; .nsys-rep where nsys is installed), and the events
// that libcgp_inject.so wrote. What a file is is told by its content.
#include <string>

#include "cgp/profile/timeline/timeline.h"
#include "cgp/profile/view/document.h"

namespace cgp::profile {

enum class FileKind : std::uint8_t {
  profile,
  ncu_report,
  ncu_csv,
  nsys_sqlite,
  nsys_csv,
  nsys_report,
  events
};
std::string_view name(FileKind k);
/// By content; `path` tells only .nsys-rep files apart.
FileKind kind_of(const std::string& path, std::string_view content);

/// Throws Error when the file cannot be read, ParseError when it is none of those, Unsupported when a tool or
/// library is needed that is not here (with the command that makes a readable file of it).
Document load_any(const std::string& path);
/// Of nsys's recordings and our events; ParseError for files without a timeline.
Timeline load_timeline(const std::string& path);

/// A timeline as a profile: kernels, waste, a picture.
Document document_of(const Timeline& t, std::string kind, std::string title,
                     std::vector<std::string> command = {});
/// Of a document with several kernels only those whose name contains `part`; its metrics are those of the one
/// that takes most time. Throws ArgumentError with the names there are.
void keep_kernels(Document& d, const std::string& part);

}  // namespace cgp::profile
