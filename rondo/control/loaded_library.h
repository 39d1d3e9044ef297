#pragma once

#include <span>
#include <string>

namespace rondo::control {

// A shared library that is loaded by name at its first use, so that programs start without it, and is never
// closed. Any thread.
class LoadedLibrary {
 public:
  // Loads the first of `names` that the dynamic linker finds. Throws Error that contains `purpose` ("OTLP is
  // sent through libcurl"), the linker's reasons, and `remedy` ("On Debian: apt-get install libcurl4").
  LoadedLibrary(std::span<const char* const> names, const std::string& purpose, const std::string& remedy);

  // Sets `function` to the library's function of this name. Throws Error where the library lacks it.
  template <class Function>
  void find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(address(name));
  }

 private:
  void* address(const char* name) const;

  std::string name_;
  std::string remedy_;
  void* handle_ = nullptr;
};

}  // namespace rondo::control
