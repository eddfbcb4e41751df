// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/import/sqlite_file.h"

#include <dlfcn.h>

#include <cstdlib>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::profile {

using text::cat;

namespace {
constexpr int kOk = 0, kRow = 100, kDone = 101, kReadOnly = 1;
}

/// The entry points, as sqlite3.h declares them.
struct SqliteFile::Library {
  int (*open_v2)(const char*, void**, int, const char*) = nullptr;
  int (*close)(void*) = nullptr;
  const char* (*errmsg)(void*) = nullptr;
  int (*prepare_v2)(void*, const char*, int, void**, const char**) = nullptr;
  int (*step)(void*) = nullptr;
  int (*finalize)(void*) = nullptr;
  std::int64_t (*column_int64)(void*, int) = nullptr;
  const unsigned char* (*column_text)(void*, int) = nullptr;

  static const Library& get() {
    static const Library library = opened();
    return library;
  }

 private:
  static Library opened() {
    const char* given = std::getenv("CGP_SQLITE");
    const std::string name = given && *given ? given : "libsqlite3.so.0";
    void* so = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!so)
      throw Unsupported(ErrorText{"reading this file needs SQLite's library", name, dlerror(),
                                  "apt install libsqlite3-0; or nsys stats --report cuda_gpu_trace --format "
                                  "csv, whose output is read "
                                  "without it"});
    Library l;
    const auto bind = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(so, symbol));
      if (!function) throw Unsupported(ErrorText{cat("SQLite's library has ", symbol), name, dlerror(), {}});
    };
    bind(l.open_v2, "sqlite3_open_v2"), bind(l.close, "sqlite3_close");
    bind(l.errmsg, "sqlite3_errmsg"), bind(l.prepare_v2, "sqlite3_prepare_v2");
    bind(l.step, "sqlite3_step"), bind(l.finalize, "sqlite3_finalize");
    bind(l.column_int64, "sqlite3_column_int64"), bind(l.column_text, "sqlite3_column_text");
    return l;
  }
};

bool is_sqlite(std::string_view bytes) {
  return bytes.substr(0, 16) == std::string_view("SQLite format 3\0", 16);
}

SqliteFile::SqliteFile(const std::string& path) : library_(Library::get()), path_(path) {
  if (library_.open_v2(path.c_str(), &database_, kReadOnly, nullptr) == kOk) return;
  const std::string why = database_ ? library_.errmsg(database_) : "out of memory";
  library_.close(database_);
  throw Error(ErrorText{"the database can be opened", path, why, {}});
}

SqliteFile::~SqliteFile() { library_.close(database_); }

void SqliteFile::query(const std::string& sql, const std::function<void(const Row&)>& each) const {
  void* statement = nullptr;
  int code = library_.prepare_v2(database_, sql.c_str(), -1, &statement, nullptr);
  if (code == kOk)
    while ((code = library_.step(statement)) == kRow) each(Row(*this, statement));
  const std::string why = code == kDone ? "" : library_.errmsg(database_);
  library_.finalize(statement);
  if (code != kDone) throw ParseError(ErrorText{"the database must be readable", path_, why, {}});
}

std::vector<std::string> SqliteFile::columns(const std::string& table) const {
  std::vector<std::string> out;
  query(cat("SELECT name FROM pragma_table_info('", table, "')"),
        [&](const Row& row) { out.push_back(row.text(0)); });
  return out;
}

std::int64_t SqliteFile::Row::integer(int column) const {
  return file_.library_.column_int64(statement_, column);
}

std::string SqliteFile::Row::text(int column) const {
  const unsigned char* s = file_.library_.column_text(statement_, column);
  return s ? reinterpret_cast<const char*>(s) : "";
}

}  // namespace cgp::profile
