// The native part of rondo_torch: makes c10d backends, and gives rondo's errors Python types.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "rondo/backend/memory/registered_memory.h"
#include "rondo/backend/native/native_backend.h"
#include "rondo/backend/registry.h"
#include "rondo/backend/rendezvous.h"
#include "rondo/base/error.h"
#include "rondo/collective/shared_memory/helper_thread.h"

namespace {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

// Collective over `store`, which must be private to the group. Blocking; called without the interpreter's
// lock.
BackendPointer create_backend(const StorePointer& store, int rank, int size,
                              const std::vector<int>& world_ranks, const std::string& group_name,
                              std::chrono::milliseconds timeout) {
  return rondo::make_backend("native", {.group_name = group_name,
                                        .rank = rank,
                                        .size = size,
                                        .world_ranks = world_ranks,
                                        .store = store,
                                        .timeout = rondo::bounded_duration(timeout),
                                        .deterministic = rondo::deterministic_by_environment()});
}

// A Python exception class for one of rondo's; instances have `ranks`, those to blame in the group's
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

}  // namespace

PYBIND11_MODULE(native, module) {
  // The types of stores and backends.
  py::module_::import("torch._C._distributed_c10d");

  const py::object distributed = py::module_::import("torch.distributed");
  const py::object any =
      make_error(module, "CommunicationError", distributed.attr("DistBackendError"),
                 "Communication failed; `ranks` lists the group's ranks to blame, if known.");
  make_error(module, "PeerLostError", any, "The process of a peer has ended.");
  make_error(module, "MismatchError", any, "Ranks disagree about what to do.");
  make_error(module, "TimeoutError", any, "A deadline passed; `ranks` had not arrived.");
  // A ValueError by meaning, and a RuntimeError because that is what c10d's other backends throw.
  make_error(module, "UsageError",
             py::make_tuple(py::reinterpret_borrow<py::object>(PyExc_ValueError),
                            py::reinterpret_borrow<py::object>(PyExc_RuntimeError)),
             "A call that cannot be; nothing was started, and the group goes on.");
  py::register_exception_translator(&translate);

  // What c10d asks of Gloo's and NCCL's groups beyond the interface of all backends.
  py::class_<rondo::NativeBackend, c10::intrusive_ptr<rondo::NativeBackend>, c10d::Backend>(module, "Backend")
      .def_property_readonly("options", &rondo::NativeBackend::getBackendOptions,
                             "The timeout, name and global ranks of the group as they are now; a copy.")
      .def("_set_default_timeout", &rondo::NativeBackend::setTimeout, py::arg("timeout"),
           py::call_guard<py::gil_scoped_release>());

  module.def("create_backend", &create_backend, py::call_guard<py::gil_scoped_release>(), py::arg("store"),
             py::arg("rank"), py::arg("size"), py::arg("world_ranks"), py::arg("group_name"),
             py::arg("timeout"));
  // Threads that want the interpreter's lock while it is torn down would never get it.
  module.def("stop_helper_threads", &rondo::shared_memory::stop_helper_threads,
             py::call_guard<py::gil_scoped_release>(),
             "Ends the helper threads of all groups of this process, for good.");
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
