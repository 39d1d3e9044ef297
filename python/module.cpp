// The native part of rondo_torch: creates c10d backends, and maps rondo's errors to Python exceptions.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "python/create_backend.h"
#include "rondo/backend/hierarchical/hierarchical_backend.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/backend/native/native_backend.h"
#include "rondo/backend/rendezvous.h"
#include "rondo/base/error.h"
#include "rondo/collective/shared_memory/helper_thread.h"

namespace {

// A holder that releases the GIL before it drops its reference: the destructor of an engine waits for threads
// that may need the GIL. Has the memory layout of c10::intrusive_ptr, which libtorch's casts copy from.
template <class T>
class UnlockedPointer {
 public:
  UnlockedPointer() = default;
  UnlockedPointer(const UnlockedPointer&) = default;
  UnlockedPointer(UnlockedPointer&&) noexcept = default;
  UnlockedPointer& operator=(const UnlockedPointer&) = default;
  UnlockedPointer& operator=(UnlockedPointer&&) noexcept = default;
  // NOLINTNEXTLINE(google-explicit-constructor): pybind11 converts
  UnlockedPointer(c10::intrusive_ptr<T> pointer) : pointer_(std::move(pointer)) {}
  explicit UnlockedPointer(T* pointer) : pointer_(c10::intrusive_ptr<T>::unsafe_steal_from_new(pointer)) {}
  ~UnlockedPointer() {
    if (!pointer_ || PyGILState_Check() == 0) return;
    const py::gil_scoped_release unlocked;
    pointer_.reset();
  }
  T* get() const noexcept { return pointer_.get(); }

 private:
  c10::intrusive_ptr<T> pointer_;
};

// A Python exception class for one of rondo's errors. Its `ranks` are the ranks at fault, in the group's
// numbering.
py::object make_error(py::module_& module, const char* name, const py::object& base,
                      const char* explanation) {
  const std::string qualified = std::string("rondo_torch.") + name;
  auto made = py::reinterpret_steal<py::object>(
      PyErr_NewExceptionWithDoc(qualified.c_str(), explanation, base.ptr(), nullptr));
  module.attr(name) = made;
  return made;
}

void raise(const char* name, const rondo::CommunicationError& error) {
  const py::object type = py::module_::import("rondo_torch.native").attr(name);
  const py::object instance = type(error.what());
  instance.attr("ranks") = error.ranks();
  PyErr_SetObject(type.ptr(), instance.ptr());
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(std::move(thrown));
  } catch (const rondo::PeerLostError& e) {
    raise("PeerLostError", e);
  } catch (const rondo::MismatchError& e) {
    raise("MismatchError", e);
  } catch (const rondo::TimeoutError& e) {
    raise("TimeoutError", e);
  } catch (const rondo::CommunicationError& e) {
    raise("CommunicationError", e);
  } catch (const rondo::UsageError& e) {
    PyErr_SetString(py::module_::import("rondo_torch.native").attr("UsageError").ptr(), e.what());
  }
}

// Registers the class of an engine, with the methods of its base class.
template <class Engine>
void bind_engine(py::module_& module, const char* name) {
  py::class_<Engine, UnlockedPointer<Engine>, rondo::RequestBackend>(module, name);
}

}  // namespace

PYBIND11_DECLARE_HOLDER_TYPE(T, UnlockedPointer<T>, true)

PYBIND11_MODULE(native, module) {
  // Imports the modules that define the types of stores and backends.
  py::module_::import("torch._C._distributed_c10d");

  const py::object distributed = py::module_::import("torch.distributed");
  const py::object any =
      make_error(module, "CommunicationError", distributed.attr("DistBackendError"),
                 "Communication failed; `ranks` lists the group's ranks that caused the failure, if known.");
  make_error(module, "PeerLostError", any, "The process of a peer has ended.");
  make_error(module, "MismatchError", any, "Ranks made different calls, or with different shapes or dtypes.");
  make_error(module, "TimeoutError", any, "A timeout expired; `ranks` did not arrive.");
  // Both a ValueError, for its meaning, and a RuntimeError, which c10d's other backends throw.
  make_error(module, "UsageError",
             py::make_tuple(py::reinterpret_borrow<py::object>(PyExc_ValueError),
                            py::reinterpret_borrow<py::object>(PyExc_RuntimeError)),
             "An invalid call; nothing was started, and the group remains usable.");
  py::register_exception_translator(&translate);

  // Members that c10d expects of Gloo's and NCCL's groups beyond the interface of all backends.
  py::class_<rondo::RequestBackend, UnlockedPointer<rondo::RequestBackend>, c10d::Backend>(module, "Backend")
      .def_property_readonly("options", &rondo::RequestBackend::getBackendOptions,
                             "A copy of the group's current timeout, name and global ranks.")
      .def("_set_default_timeout", &rondo::RequestBackend::setTimeout, py::arg("timeout"),
           py::call_guard<py::gil_scoped_release>())
      .def(
          "perform_nocolor_split", [](rondo::RequestBackend&, const at::Device&) {}, py::arg("device"),
          "Does nothing: ranks outside of a new group take no part in making it.");
  bind_engine<rondo::NativeBackend>(module, "NativeBackend");
  bind_engine<rondo::HierarchicalBackend>(module, "HierarchicalBackend");

  module.def("create_backend", &rondo::plugin::create_backend, py::call_guard<py::gil_scoped_release>(),
             py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("world_ranks"),
             py::arg("group_name"), py::arg("timeout"));
  // Threads that wait for the GIL while the interpreter shuts down would never get it.
  module.def(
      "stop_threads",
      [] {
        rondo::plugin::close_groups();
        rondo::shared_memory::stop_helper_threads();
      },
      py::call_guard<py::gil_scoped_release>(),
      "Stops the threads of all groups of this process permanently, after operations in flight or 5 s.");
  module.def("launcher_store", &rondo::launcher_store,
             "The store of the job that `rondo run` started, or None.");
  module.def(
      "empty_registered",
      [](const std::vector<std::int64_t>& sizes, at::ScalarType dtype) {
        return rondo::empty_registered(sizes, at::TensorOptions(dtype));
      },
      py::arg("sizes"), py::arg("dtype") = at::kFloat,
      "A CPU tensor that the ranks of this host read and write in place; contents unspecified.");
  module.def("is_registered", &rondo::is_registered, py::arg("tensor"),
             "Whether peers can read and write the tensor's storage in place.");
  module.def("registers_allocations", &rondo::registers_allocations,
             "Whether libtorch takes large CPU tensors from registered memory in this process.");
}
