/* onnx_wire.c -- validation of a model file before it is given to protobuf-c, in one pass over
 * the bytes.
 *
 * protobuf-c is not safe for untrusted files: it recurses to the nesting depth of the data,
 * merges a singular message that occurs twice, truncates strings at a NUL, and allocates two
 * hundred bytes for an empty node of two bytes. So the bytes are first checked with the message
 * descriptors that protoc-c generated: a stack of fixed depth instead of recursion, each length
 * within its enclosing message, no duplicate singular field, and a limit on every count.
 * gp_onnx_tensor_check() then checks the tensors. */
#include <inttypes.h>
#include <string.h>

#include "common/model/onnx/onnx_proto.h"

enum {
    DEPTH_MAX = 16,
    FIELDS_MAX = 1 << 20, /* limit for the whole file: fields and packed integers */
    NODES_MAX = 16384,
    TENSORS_MAX = 32768,
    ATTRIBUTES_MAX = 131072,
};

enum { WIRE_VARINT = 0, WIRE_64BIT = 1, WIRE_BYTES = 2, WIRE_32BIT = 5 };

typedef struct frame {
    const ProtobufCMessageDescriptor *type;
    size_t end;
    uint64_t seen; /* bit mask of singular fields, by index in the descriptor */
} frame;

typedef struct walk {
    const uint8_t *data;
    size_t at;
    uint32_t fields, nodes, tensors, attributes;
    uint32_t depth;
    frame stack[DEPTH_MAX];
} walk;

/* One field whose key was read. The payload is [at, at + bytes) or, for a varint, value. */
typedef struct field {
    const ProtobufCFieldDescriptor *about; /* NULL: not in the supported onnx.proto */
    uint32_t number, wire;
    uint64_t value;
    size_t start, bytes;
} field;

char *gp_onnx_show(char text[GP_ONNX_SHOWN_BYTES], const char *name, size_t bytes)
{
    size_t used = 0;

    for (; used < bytes && used < GP_ONNX_SHOWN_BYTES - 4 && name[used] != '\0'; used++)
        text[used] = name[used] >= ' ' && name[used] <= '~' ? name[used] : '?';
    strcpy(text + used, used < bytes && name[used] != '\0' ? "..." : "");
    return text;
}

static gp_status corrupt(const walk *w, const char *what, gp_error *err)
{
    return gp_fail(err, GP_ECORRUPT, "byte %zu: %s (in %s); the file is damaged or not an ONNX model", w->at,
                   what, w->stack[w->depth].type->short_name);
}

static gp_status read_varint(walk *w, uint64_t *out, uint32_t bytes_max, gp_error *err)
{
    const size_t end = w->stack[w->depth].end;
    uint64_t value = 0;

    for (uint32_t i = 0; i < bytes_max; i++) {
        if (w->at == end)
            return corrupt(w, "a truncated number", err);
        uint8_t byte = w->data[w->at++];

        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *out = value;
            return GP_OK;
        }
    }
    return corrupt(w, "a number with too many bytes", err);
}

static gp_status read_field(walk *w, field *out, gp_error *err)
{
    const frame *top = &w->stack[w->depth];
    uint64_t key;
    gp_status status = read_varint(w, &key, 5, err);

    if (status != GP_OK)
        return status;
    if (key > UINT32_MAX || key >> 3 == 0)
        return corrupt(w, "a field number out of range", err);
    *out = (field){ .number = (uint32_t)key >> 3, .wire = key & 7, .start = w->at };
    out->about = protobuf_c_message_descriptor_get_field(top->type, out->number);
    switch (out->wire) {
    case WIRE_VARINT:
        return read_varint(w, &out->value, 10, err);
    case WIRE_64BIT:
        out->bytes = 8;
        break;
    case WIRE_32BIT:
        out->bytes = 4;
        break;
    case WIRE_BYTES:
        status = read_varint(w, &out->value, 5, err);
        if (status != GP_OK)
            return status;
        out->start = w->at;
        if (out->value > top->end - w->at)
            return gp_fail(err, GP_ECORRUPT,
                           "byte %zu: %" PRIu64
                           " bytes needed, but only %zu are left (in %s); the file is damaged or truncated",
                           w->at, out->value, top->end - w->at, top->type->short_name);
        out->bytes = (size_t)out->value;
        break;
    default:
        return corrupt(w, "a field with an unknown wire type", err);
    }
    if (out->bytes > top->end - w->at)
        return corrupt(w, "a truncated field", err);
    return GP_OK;
}

static uint32_t wire_of(const ProtobufCFieldDescriptor *about)
{
    switch (about->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_BYTES;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return WIRE_32BIT;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return WIRE_64BIT;
    default:
        return WIRE_VARINT;
    }
}

/* Check that a singular field, or a member of a oneof, occurs only once: protobuf-c would merge
 * or replace. */
static gp_status check_once(walk *w, const ProtobufCFieldDescriptor *about, gp_error *err)
{
    frame *top = &w->stack[w->depth];
    uint32_t index = (uint32_t)(about - top->type->fields);

    if (about->label == PROTOBUF_C_LABEL_REPEATED)
        return GP_OK;
    if (about->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        for (index = 0; top->type->fields[index].quantifier_offset != about->quantifier_offset;)
            index++;
    if (top->seen >> index & 1)
        return corrupt(w, "a field that is present twice", err);
    top->seen |= (uint64_t)1 << index;
    return GP_OK;
}

static gp_status count_fields(walk *w, size_t more, gp_error *err)
{
    if (more > FIELDS_MAX - w->fields)
        return gp_fail(err, GP_ELIMIT, "byte %zu: more than %d fields; the model is too large", w->at,
                       FIELDS_MAX);
    w->fields += (uint32_t)more;
    return GP_OK;
}

/* Count packed integers. Each must end within ten bytes, and the last one at the end of the
 * field. */
static gp_status count_packed(walk *w, const field *f, gp_error *err)
{
    uint32_t length = 0;
    size_t count = 0;

    for (size_t i = 0; i < f->bytes; i++) {
        if (++length > 10)
            return corrupt(w, "a packed number with too many bytes", err);
        if (w->data[f->start + i] < 0x80) {
            count++;
            length = 0;
        }
    }
    return length == 0 ? count_fields(w, count, err) : corrupt(w, "a truncated packed field", err);
}

static gp_status count_message(walk *w, const ProtobufCMessageDescriptor *type, gp_error *err)
{
    const struct {
        const ProtobufCMessageDescriptor *type;
        uint32_t *count, max;
        const char *what;
    } limits[] = {
        { &onnx__node_proto__descriptor, &w->nodes, NODES_MAX, "nodes" },
        { &onnx__tensor_proto__descriptor, &w->tensors, TENSORS_MAX, "tensors" },
        { &onnx__attribute_proto__descriptor, &w->attributes, ATTRIBUTES_MAX, "attributes" },
    };

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        if (type == limits[i].type && ++*limits[i].count > limits[i].max)
            return gp_fail(err, GP_ELIMIT, "the model has more than %" PRIu32 " %s", limits[i].max,
                           limits[i].what);
    return GP_OK;
}

static gp_status push(walk *w, const ProtobufCMessageDescriptor *type, size_t bytes, gp_error *err)
{
    gp_status status = count_message(w, type, err);

    if (status != GP_OK)
        return status;
    if (w->depth + 1 == DEPTH_MAX)
        return gp_fail(err, GP_ELIMIT, "byte %zu: more than %d levels of nested messages", w->at, DEPTH_MAX);
    w->stack[++w->depth] = (frame){ .type = type, .end = w->at + bytes };
    return GP_OK;
}

static gp_status walk_known(walk *w, const field *f, gp_error *err)
{
    const ProtobufCFieldDescriptor *about = f->about;
    const uint32_t wire = wire_of(about);
    gp_status status = check_once(w, about, err);

    if (status != GP_OK)
        return status;
    if (f->wire != wire) {
        if (f->wire != WIRE_BYTES || about->label != PROTOBUF_C_LABEL_REPEATED)
            return corrupt(w, "a field with the wrong type", err);
        if (wire != WIRE_VARINT && f->bytes % (wire == WIRE_32BIT ? 4 : 8) != 0)
            return corrupt(w, "a truncated list of numbers", err);
        status = wire == WIRE_VARINT ? count_packed(w, f, err) : GP_OK;
    } else if (about->type == PROTOBUF_C_TYPE_STRING && memchr(w->data + f->start, 0, f->bytes) != NULL) {
        return corrupt(w, "a text with a NUL byte", err);
    }
    if (status == GP_OK && about->type == PROTOBUF_C_TYPE_MESSAGE)
        return push(w, about->descriptor, f->bytes, err);
    w->at += f->bytes;
    return status;
}

gp_status gp_onnx_wire_check(const uint8_t *data, size_t bytes, gp_error *err)
{
    walk w = { .data = data };

    if (bytes == 0)
        return gp_fail(err, GP_ECORRUPT, "the file is empty");
    if (bytes > GP_ONNX_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "the model has %zu bytes, at most %zu (2 GiB) are supported", bytes,
                       GP_ONNX_BYTES_MAX);
    w.stack[0] = (frame){ .type = &onnx__model_proto__descriptor, .end = bytes };
    for (;;) {
        const frame *top = &w.stack[w.depth];
        field f;

        if (w.at == top->end) {
            if (w.depth == 0)
                return GP_OK;
            w.depth--;
            continue;
        }
        gp_status status = read_field(&w, &f, err);

        if (status == GP_OK)
            status = count_fields(&w, 1, err);
        if (status == GP_OK && f.about != NULL)
            status = walk_known(&w, &f, err);
        else
            w.at += f.bytes;
        if (status != GP_OK)
            return status;
    }
}
