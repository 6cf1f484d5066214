/* Define the message types listed in messages.def, and look them up by id. */
#include "proto/message/messages.h"

#include "proto/message/tables.h"

#define GP_MSG(number, word, way)                                                                            \
    const gp_message_type gp_msg_##word = {                                                                  \
        .id = number,                                                                                        \
        .name = #word,                                                                                       \
        .direction = GP_DIR_##way,                                                                           \
        .size = sizeof(gp_##word),                                                                           \
        .fields = gp_##word##_fields,                                                                        \
    };
#include "proto/message/messages.def"
#undef GP_MSG

static const gp_message_type *const types[] = {
#define GP_MSG(id, name, direction) &gp_msg_##name,
#include "proto/message/messages.def"
#undef GP_MSG
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
