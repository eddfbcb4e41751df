// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/files/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::model {

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)), temporary_(text::cat(path_, ".", ::getpid(), ".part")) {
  file_ = std::fopen(temporary_.c_str(), "wbx");
  if (!file_) fail();
}

OutputFile::~OutputFile() {
  if (!file_) return;
  std::fclose(file_);
  std::remove(temporary_.c_str());
}

void OutputFile::fail() {
  throw Error(ErrorText{"a model file must be writable", path_, std::strerror(errno), {}});
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail();
}

void OutputFile::commit() {
  if (std::fflush(file_) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
  std::fclose(std::exchange(file_, nullptr));
}

}  // namespace cgp::model
