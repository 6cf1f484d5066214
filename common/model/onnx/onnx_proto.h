/* onnx_proto.h -- declarations shared by onnx_*.c. Only this header includes the protobuf-c code
 * for onnx.proto, which CMake generates in the build directory. */
#ifndef GP_ONNX_PROTO_H
#define GP_ONNX_PROTO_H

#include <onnx.pb-c.h>

#include "common/model/graph/graph.h"

#define GP_ONNX_BYTES_MAX   ((size_t)INT32_MAX) /* protobuf limit */
#define GP_ONNX_OPSET       13
#define GP_ONNX_OPSET_MIN   6
#define GP_ONNX_OPSET_MAX   28
#define GP_ONNX_KEY_NETWORK "gradpool.network"
#define GP_ONNX_KEY_CLASSES "gradpool.classes"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw_data is little-endian, and copied as it is");

/* Cast a constant string for protobuf-c, which does not use const. It does not write to the
 * string. */
static inline char *gp_onnx_text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

/* ---- onnx_wire.c ---- */

/* Check that the bytes are a well-formed ModelProto within the limits. This must precede any use
 * of protobuf-c on them. */
gp_status gp_onnx_wire_check(const uint8_t *data, size_t bytes, gp_error *err);

/* Make a name from a file printable: at most 48 bytes of visible ASCII, '?' for other bytes.
 * Return text. */
enum { GP_ONNX_SHOWN_BYTES = 52 };
char *gp_onnx_show(char text[GP_ONNX_SHOWN_BYTES], const char *name, size_t bytes);

/* ---- onnx_external.c ---- */

/* Check all tensors, and load those whose data are in other files of the directory.
 *   folder  NULL: refuse such tensors
 *   bytes   set to the number of bytes read
 * GP_ECORRUPT, GP_ELIMIT: see gp_onnx_tensor_check(). GP_ENOENT, GP_EIO: a file cannot be read.
 * GP_EUNSUPPORTED: the file is not below the directory. */
gp_status gp_onnx_external_load(Onnx__GraphProto *graph, const char *folder, size_t *bytes, gp_error *err);

/* ---- onnx_write.c ---- */

/* ONNX form of a network, without metadata. Borrows spec, graph and blob. */
typedef struct gp_onnx_draft gp_onnx_draft;

/* Create a draft. blob may be NULL: the tensors then have names and shapes, but no data. */
gp_status gp_onnx_draft_new(gp_onnx_draft **out, const gp_netspec *spec, const gp_graph *graph,
                            const float *blob, gp_error *err);
void gp_onnx_draft_free(gp_onnx_draft *draft);
Onnx__GraphProto *gp_onnx_draft_graph(gp_onnx_draft *draft);

#endif
