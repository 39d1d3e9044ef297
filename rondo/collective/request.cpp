#include "rondo/collective/request.h"

#include "rondo/base/text.h"

namespace rondo {

const char* name(OperationKind kind) {
  switch (kind) {
    case OperationKind::all_reduce:
      return "all_reduce";
    case OperationKind::reduce_scatter:
      return "reduce_scatter";
    case OperationKind::all_gather:
      return "all_gather";
    case OperationKind::broadcast:
      return "broadcast";
    case OperationKind::reduce:
      return "reduce";
    case OperationKind::gather:
      return "gather";
    case OperationKind::scatter:
      return "scatter";
    case OperationKind::all_to_all:
      return "all_to_all";
    case OperationKind::barrier:
      return "barrier";
  }
  return "unknown";
}

bool reduces(OperationKind kind) {
  return kind == OperationKind::all_reduce || kind == OperationKind::reduce_scatter ||
         kind == OperationKind::reduce;
}

std::string describe(const CollectiveRequest& request) {
  if (request.kind == OperationKind::barrier) return "barrier()";
  std::string text = str(name(request.kind), "(", request.elements, " x ", name(request.type));
  switch (request.kind) {
    case OperationKind::all_reduce:
    case OperationKind::reduce_scatter:
      text += str(", ", name(request.reduction));
      break;
    case OperationKind::reduce:
      text += str(", ", name(request.reduction), ", root ", request.root);
      break;
    case OperationKind::broadcast:
    case OperationKind::gather:
    case OperationKind::scatter:
      text += str(", root ", request.root);
      break;
    default:
      break;
  }
  if (request.weighted) text += ", weighted";
  return text + ")";
}

std::string describe_call(CollectiveCall call, const std::string& described) {
  if (call == CollectiveCall::none) return "called " + described;
  return str("is in ", name(call), " and called ", described);
}

std::string in_call(CollectiveCall call) {
  return call == CollectiveCall::none ? std::string() : str(" in ", name(call));
}

}  // namespace rondo
