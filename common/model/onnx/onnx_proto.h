/* onnx_proto.h -- what the files onnx_*.c share.  The one place that includes protobuf-c's code for onnx.proto,
 * which CMake generates in the build folder. */
#ifndef GP_ONNX_PROTO_H
#define GP_ONNX_PROTO_H

#include <onnx.pb-c.h>

#include "common/model/graph/graph.h"

#define GP_ONNX_BYTES_MAX   ((size_t)INT32_MAX) /* where protobuf itself ends */
#define GP_ONNX_OPSET       13
#define GP_ONNX_OPSET_MIN   6
#define GP_ONNX_OPSET_MAX   28
#define GP_ONNX_KEY_NETWORK "gradpool.network"
#define GP_ONNX_KEY_CLASSES "gradpool.classes"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw_data is little-endian, and copied as it is");

/* protobuf-c has no const; nothing is written through it. */
static inline char *gp_onnx_text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

/* ---- onnx_wire.c ---- */

/* Whether bytes are a well-formed ModelProto within our limits: only then protobuf-c may see them. */
gp_status gp_onnx_wire_check(const uint8_t *data, size_t bytes, gp_error *err);

/* A foreign name for a message: at most 48 bytes of visible ASCII, '?' for others.  Returns text. */
enum { GP_ONNX_SHOWN_BYTES = 52 };
char *gp_onnx_show(char text[GP_ONNX_SHOWN_BYTES], const char *name, size_t bytes);

/* ---- onnx_external.c ---- */

/* Fill the tensors whose data is in other files of that folder; bytes: how many were read.  folder NULL: refuse them.
 * GP_ENOENT, GP_EIO: such a file cannot be read.  GP_EUNSUPPORTED: it is not below the folder. */
gp_status gp_onnx_external_load(Onnx__GraphProto *graph, const char *folder, size_t *bytes, gp_error *err);

/* ---- onnx_write.c ---- */

/* The ONNX form of a network, but for the metadata.  Borrows spec, graph and blob while it lives. */
typedef struct gp_onnx_draft gp_onnx_draft;

/* blob may be NULL: the tensors have names and shapes then, and no data. */
gp_status gp_onnx_draft_new(gp_onnx_draft **out, const gp_netspec *spec, const gp_graph *graph,
                            const float *blob, gp_error *err);
void gp_onnx_draft_free(gp_onnx_draft *draft);
Onnx__GraphProto *gp_onnx_draft_graph(gp_onnx_draft *draft);

#endif
