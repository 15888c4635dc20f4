// A library that is loaded while the program runs, and may be missing.
#pragma once

#include <string>

namespace muster {

// Owns the handle; the library is let go with it.
class SharedLibrary {
 public:
  // Where it cannot be loaded, error() says why.
  explicit SharedLibrary(const std::string& name);
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  const std::string& error() const { return error_; }

  // Sets `function` to the first of these names that the library has, or to null.
  template <typename Function, typename... Names>
  void Get(Function*& function, Names... names) const {
    function = nullptr;
    ((function = function != nullptr ? function : reinterpret_cast<Function*>(Symbol(names))), ...);
  }

 private:
  void* Symbol(const char* name) const;

  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace muster
