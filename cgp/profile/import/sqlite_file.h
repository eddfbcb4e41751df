// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reading SQLite databases with the system's libsqlite3, which is opened when it is needed: the command does
// not depend on it.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::profile {

bool is_sqlite(std::string_view bytes);

class SqliteFile {
 public:
  /// Opens for reading. Throws Unsupported where there is no libsqlite3 ($CGP_SQLITE names another), Error
  /// when the file is none.
  explicit SqliteFile(const std::string& path);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  /// Names of a table's columns; empty: there is no such table.
  std::vector<std::string> columns(const std::string& table) const;

  /// One row of a result; absent values (NULL) are 0 and "".
  class Row {
   public:
    std::int64_t integer(int column) const;
    std::string text(int column) const;

   private:
    friend class SqliteFile;
    Row(const SqliteFile& file, void* statement) : file_(file), statement_(statement) {}
    const SqliteFile& file_;
    void* statement_;
  };
  void query(const std::string& sql, const std::function<void(const Row&)>& each) const;

 private:
  struct Library;
  const Library& library_;
  std::string path_;
  void* database_ = nullptr;
};

}  // namespace cgp::profile
