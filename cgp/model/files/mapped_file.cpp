// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cgp/base/error.h"

namespace cgp::model {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  auto fail = [&](const char* what) {
    std::string why = std::strerror(errno);
    if (file >= 0) ::close(file);
    throw Error(ErrorText{what, path, why, {}});
  };
  if (file < 0) fail("a model file must be readable");
  struct stat info {};
  if (::fstat(file, &info) != 0) fail("a model file must be readable");
  if (!S_ISREG(info.st_mode)) {
    errno = EINVAL;
    fail("a model must be a regular file");
  }
  size_ = std::size_t(info.st_size);
  if (size_ > 0) {
    void* at = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) fail("a model file must fit the address space");
    data_ = static_cast<const std::byte*>(at);
  }
  ::close(file);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace cgp::model
