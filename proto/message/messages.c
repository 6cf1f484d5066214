/* Define the message types listed in messages.def, and look them up by id. */
#include "proto/message/messages.h"

#include "common/base/memory/tensor.h"

#define GP_MSG(number, word, way)                                                                            \
    extern const gp_field gp_##word##_fields[];                                                              \
    const gp_message_type gp_msg_##word = {                                                                  \
        .id = number,                                                                                        \
        .name = #word,                                                                                       \
        .direction = GP_DIR_##way,                                                                           \
        .size = sizeof(gp_##word),                                                                           \
        .fields = gp_##word##_fields,                                                                        \
    };                                                                                                       \
    const gp_field gp_##word##_fields[] = {
#define GP_EMPTY(number, word, way) GP_MSG(number, word, way) GP_END(word)
#define GP_STRUCT(type)             const gp_field type##_fields[] = {
#define GP_FIELD(kind, ...)         GP_FIELD_##kind(__VA_ARGS__),
#define GP_END(type)                                                                                         \
    GP_FIELD_END                                                                                             \
    }                                                                                                        \
    ;
#include "proto/message/messages.def"

static const gp_message_type *const types[] = {
#define GP_MSG(id, name, direction) &gp_msg_##name,
#define GP_EMPTY                    GP_MSG
#define GP_STRUCT(type)
#define GP_FIELD(...)
#define GP_END(type)
#include "proto/message/messages.def"
};

enum { TYPE_COUNT = sizeof(types) / sizeof(types[0]) };

const gp_message_type *gp_message_find(uint32_t id)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i]->id == id)
            return types[i];
    return NULL;
}

const gp_message_type *const *gp_message_all(size_t *count)
{
    *count = TYPE_COUNT;
    return types;
}
