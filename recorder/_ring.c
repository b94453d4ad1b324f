/* Prepared emitters in C: what the text in `emitters.py` does, byte for byte.

   Nothing here is needed: without it, or with HKV_NATIVE=0, that text runs. It knows the rarer
   things only by handing them on: where a ring is busy or full, where a thread has none, where a
   value is not plain, the event goes as a dictionary through `Recording.emit_dict`, which counts.

   Between taking a ring and publishing a record no Python code runs, so that neither a signal
   handler nor a finalizer nor another thread comes between. Limited API of 3.10: one binary for
   every later release. */

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

int add_hooks(PyObject *module);

#define SCRATCH (1 << 16)
#define DEEPEST 8
#define MOST_KEYS 64

/* --- the state of a ring that its writer changes with each event --------------------------- */

typedef struct {
    PyObject_HEAD
    unsigned long long at, head, seq, limit;
    char busy, off;
    unsigned char *file;
    size_t size, header, word;
} Cursor;

static PyMemberDef cursor_members[] = {
    {"_at", T_ULONGLONG, offsetof(Cursor, at), 0, NULL},
    {"_head", T_ULONGLONG, offsetof(Cursor, head), 0, NULL},
    {"_seq", T_ULONGLONG, offsetof(Cursor, seq), 0, NULL},
    {"_limit", T_ULONGLONG, offsetof(Cursor, limit), 0, NULL},
    {"_busy", T_BOOL, offsetof(Cursor, busy), 0, NULL},
    {"_off", T_BOOL, offsetof(Cursor, off), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *cursor_unmap(Cursor *self, PyObject *unused)
{
    (void)unused;
    if (self->file != NULL)
        munmap(self->file, self->size);
    self->file = NULL;
    self->limit = 0;
    Py_RETURN_NONE;
}

static PyObject *cursor_map(Cursor *self, PyObject *args)
{
    int fd;
    Py_ssize_t header, capacity, word;
    if (!PyArg_ParseTuple(args, "innn", &fd, &header, &capacity, &word))
        return NULL;
    if (header < 0 || capacity <= 0 || word < 0 || 8 * word + 8 > header || self->file != NULL) {
        PyErr_SetString(PyExc_ValueError, "no ring can be mapped like that");
        return NULL;
    }
    size_t size = (size_t)header + (size_t)capacity;
    void *file = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return PyErr_SetFromErrno(PyExc_OSError);
    self->file = file;
    self->size = size;
    self->header = (size_t)header;
    self->word = (size_t)word;
    Py_RETURN_NONE;
}

static uint32_t crc_table[256];

static uint32_t crc32(const unsigned char *data, size_t length, uint32_t begin)
{
    uint32_t crc = ~begin;
    for (size_t i = 0; i < length; i++)
        crc = crc >> 8 ^ crc_table[(crc ^ data[i]) & 255];
    return ~crc;
}

static void publish(Cursor *self, unsigned long long head, unsigned long long end)
{
    /* Last, and behind everything that was stored before: from here on the record counts. */
    __atomic_store_n((uint64_t *)(void *)self->file + self->word, head, __ATOMIC_RELEASE);
    self->head = head;
    self->at = end;
    self->seq++;
}

/* Store a record as `Ring.emit` does where nothing stands in the way; whether it was. */
static PyObject *cursor_put(Cursor *self, PyObject *args)
{
    const char *payload;
    Py_ssize_t size;
    unsigned kind;
    struct timespec time;
    if (!PyArg_ParseTuple(args, "Iy#", &kind, &payload, &size))
        return NULL;
    unsigned long long at = self->at, begin = self->head;
    unsigned long long end = at + (((unsigned long long)size + 31) & ~7ULL), head = begin + end - at;
    if (self->file == NULL || end > self->limit || self->header + end > self->size)
        Py_RETURN_FALSE;
    clock_gettime(CLOCK_MONOTONIC, &time);
    unsigned char *record = self->file + self->header + at;
    uint32_t first = (uint32_t)size | kind;
    uint64_t seq = self->seq;
    int64_t now = time.tv_sec * 1000000000LL + time.tv_nsec;
    memcpy(record + 4, &first, 4);
    memcpy(record + 8, &seq, 8);
    memcpy(record + 16, &now, 8);
    memcpy(record + 24, payload, (size_t)size);
    first = crc32(record + 4, 20 + (size_t)size, (uint32_t)begin);
    memcpy(record, &first, 4);
    publish(self, head, end);
    Py_RETURN_TRUE;
}

static void cursor_dealloc(Cursor *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    if (self->file != NULL)
        munmap(self->file, self->size);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef cursor_methods[] = {
    {"_map_records", (PyCFunction)cursor_map, METH_VARARGS,
     "Map the file once more, for the emitters written in C."},
    {"_put", (PyCFunction)cursor_put, METH_VARARGS,
     "Store a record of this kind with the time; False where that takes more than storing it."},
    {"_unmap_records", (PyCFunction)cursor_unmap, METH_NOARGS, "Give that mapping back."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cursor_slots[] = {
    {Py_tp_dealloc, cursor_dealloc},
    {Py_tp_members, cursor_members},
    {Py_tp_methods, cursor_methods},
    {Py_tp_doc, "How far the writer of a ring has come."},
    {0, NULL},
};

static PyType_Spec cursor_spec = {
    "hkvtool.recorder._ring.Cursor", sizeof(Cursor), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, cursor_slots,
};

static PyTypeObject *cursor_type;

/* --- values, as marshal writes them in its version 2 ---------------------------------------- */

static unsigned char scratch[SCRATCH];
/* One is enough: whoever writes in it holds the interpreter's lock until the record is stored. */

typedef struct {
    unsigned char *at, *end;
} Out;

static inline void put32(unsigned char *at, uint32_t v)
{
    at[0] = v & 255, at[1] = v >> 8 & 255, at[2] = v >> 16 & 255, at[3] = v >> 24;
}

static inline int put_tagged(Out *out, char tag, int32_t v)
{
    if (out->end - out->at < 5)
        return 0;
    out->at[0] = (unsigned char)tag;
    put32(out->at + 1, (uint32_t)v);
    out->at += 5;
    return 1;
}

static int put_long(Out *out, long long v)
{
    unsigned long long rest = v < 0 ? 0 - (unsigned long long)v : (unsigned long long)v;
    int32_t digits = 0;
    unsigned char *count = out->at + 1;
    if (out->end - out->at < 5 + 2 * 5)
        return 0;
    out->at[0] = 'l';
    out->at += 5;
    for (; rest; rest >>= 15, digits++) {
        out->at[0] = rest & 255, out->at[1] = rest >> 8 & 127;
        out->at += 2;
    }
    put32(count, (uint32_t)(v < 0 ? -digits : digits));
    return 1;
}

static int put_double(Out *out, double v)
{
    uint64_t bits;
    if (out->end - out->at < 9)
        return 0;
    memcpy(&bits, &v, 8);
    out->at[0] = 'g';
    put32(out->at + 1, (uint32_t)bits);
    put32(out->at + 5, (uint32_t)(bits >> 32));
    out->at += 9;
    return 1;
}

/* True where the value was written; false, with or without an exception, where it is for Python. */
static int put_value(Out *out, PyObject *v, int depth)
{
    PyTypeObject *type = Py_TYPE(v);
    if (type == &PyLong_Type) {
        int over;
        long long n = PyLong_AsLongLongAndOverflow(v, &over);
        if (over || n == LLONG_MIN)
            return 0;
        return n == (int32_t)n ? put_tagged(out, 'i', (int32_t)n) : put_long(out, n);
    }
    if (type == &PyUnicode_Type) {
        Py_ssize_t size;
        const char *text = PyUnicode_AsUTF8AndSize(v, &size);
        if (text == NULL || out->end - out->at < 5 + size)
            return 0;
        put_tagged(out, 'u', (int32_t)size);
        memcpy(out->at, text, (size_t)size);
        out->at += size;
        return 1;
    }
    if (type == &PyList_Type || type == &PyTuple_Type) {
        int list = type == &PyList_Type;
        Py_ssize_t size = list ? PyList_Size(v) : PyTuple_Size(v);
        if (depth >= DEEPEST || size > SCRATCH || !put_tagged(out, list ? '[' : '(', (int32_t)size))
            return 0;
        for (Py_ssize_t i = 0; i < size; i++)
            if (!put_value(out, list ? PyList_GetItem(v, i) : PyTuple_GetItem(v, i), depth + 1))
                return 0;
        return 1;
    }
    if (out->at == out->end)
        return 0;
    if (v == Py_None || v == Py_True || v == Py_False) {
        *out->at++ = v == Py_None ? 'N' : v == Py_True ? 'T' : 'F';
        return 1;
    }
    return type == &PyFloat_Type && put_double(out, PyFloat_AsDouble(v));
}

static uint32_t adler32(const unsigned char *data, size_t length, uint32_t begin)
{
    uint32_t a = begin & 0xffff, b = begin >> 16;
    while (length) {
        /* So many that the sums stay within 32 bits. */
        uint32_t n = length < 5504 ? (uint32_t)length : 5504, sum = 0, weighted = 0;
        for (uint32_t i = 0; i < n; i++) {
            sum += data[i];
            weighted += (n - i) * data[i];
        }
        b = (uint32_t)(((uint64_t)b + (uint64_t)n * a + weighted) % 65521);
        a = (a + sum) % 65521;
        data += n;
        length -= n;
    }
    return b << 16 | a;
}

/* --- emitters ------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *mine, *otherwise, *dumps, *ev, *order, *names;
    long long shape;
    unsigned kind, version;
    int count, place[MOST_KEYS];
    PyMethodDef def;
} Emitter;

static PyObject *text_ring, *text_ev;

static PyObject *hand_on(Emitter *self, PyObject *const *values)
{
    PyObject *event = PyDict_New(), *given = NULL, *result = NULL;
    if (event == NULL || PyDict_SetItem(event, text_ev, self->ev) < 0)
        goto end;
    for (int i = 0; i < self->count; i++) {
        PyObject *value = values[self->place[i]];
        if (value != Py_None
            && PyDict_SetItem(event, PyTuple_GetItem(self->order, i), value) < 0)
            goto end;
    }
    given = PyTuple_Pack(1, event);
    if (given != NULL)
        result = PyObject_CallObject(self->otherwise, given);
end:
    Py_XDECREF(given);
    Py_XDECREF(event);
    return result;
}

/* The record's payload for values that are not plain: what marshal makes of them. */
static PyObject *dumped(Emitter *self, PyObject *const *values, unsigned long long seq, double now)
{
    PyObject *flat = PyTuple_New(3 + self->count), *data = NULL;
    if (flat == NULL)
        return NULL;
    PyObject *head[] = {
        PyLong_FromLongLong(self->shape), PyLong_FromUnsignedLongLong(seq),
        PyFloat_FromDouble(now),
    };
    int whole = head[0] && head[1] && head[2];
    for (int i = 0; i < 3; i++)
        PyTuple_SetItem(flat, i, head[i]);
    for (int i = 0; i < self->count; i++) {
        PyObject *value = values[self->place[i]];
        Py_INCREF(value);
        PyTuple_SetItem(flat, 3 + i, value);
    }
    if (whole)
        data = PyObject_CallFunction(self->dumps, "OI", flat, self->version);
    Py_DECREF(flat);
    return data;
}

static int store(Emitter *self, Cursor *ring, PyObject *const *values)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    double now = (double)(time.tv_sec * 1000000000LL + time.tv_nsec) / 1e9;
    unsigned long long seq = ring->seq;
    Out out = {scratch, scratch + SCRATCH};
    const unsigned char *data = scratch;
    PyObject *made = NULL;
    size_t length;
    int plain = put_tagged(&out, '(', 3 + self->count);
    plain = plain && put_tagged(&out, 'i', (int32_t)self->shape);
    if (plain)
        plain = seq <= INT32_MAX ? put_tagged(&out, 'i', (int32_t)seq)
                                 : seq <= INT64_MAX && put_long(&out, (long long)seq);
    plain = plain && put_double(&out, now);
    for (int i = 0; plain && i < self->count; i++)
        plain = put_value(&out, values[self->place[i]], 1);
    length = (size_t)(out.at - scratch);
    if (!plain) {
        char *bytes;
        Py_ssize_t size;
        PyErr_Clear();
        made = dumped(self, values, seq, now);
        if (made == NULL || PyBytes_AsStringAndSize(made, &bytes, &size) < 0)
            goto failed;
        data = (unsigned char *)bytes;
        length = (size_t)size;
    }
    /* Python code may have run in there. */
    unsigned long long at = ring->at, begin = ring->head;
    unsigned long long end = at + ((length + 15) & ~7ULL), head = begin + end - at;
    if (ring->file == NULL || end > ring->limit || ring->header + end > ring->size)
        goto failed;
    unsigned char *record = ring->file + ring->header + at;
    uint32_t words[2] = {
        adler32(data, length, (uint32_t)begin), (uint32_t)length | self->kind,
    };
    memcpy(record, words, 8);
    memcpy(record + 8, data, length);
    publish(ring, head, end);
    Py_XDECREF(made);
    return 1;
failed:
    Py_XDECREF(made);
    PyErr_Clear();
    return 0;
}

static int in_order(Emitter *self, PyObject *const *given, Py_ssize_t count, PyObject *named,
                    PyObject **values)
{
    for (int i = 0; i < self->count; i++)
        values[i] = i < count ? given[i] : NULL;
    Py_ssize_t more = named == NULL ? 0 : PyTuple_Size(named);
    for (Py_ssize_t n = 0; n < more; n++) {
        int found = 0;
        for (int i = 0; i < self->count && !found; i++) {
            int same = PyObject_RichCompareBool(
                PyTuple_GetItem(self->names, i), PyTuple_GetItem(named, n), Py_EQ);
            if (same < 0)
                return 0;
            if (same && values[i] == NULL) {
                values[i] = given[count + n];
                found = 1;
            }
        }
        if (!found)
            return 0;
    }
    for (int i = 0; i < self->count; i++)
        if (values[i] == NULL)
            return 0;
    return count <= self->count;
}

static PyObject *emit(PyObject *me, PyObject *const *given, Py_ssize_t count, PyObject *named)
{
    Emitter *self = (Emitter *)me;
    PyObject *ordered[MOST_KEYS];
    PyObject *const *values = given;
    if (named != NULL || count != self->count) {
        if (!in_order(self, given, count, named, ordered)) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_TypeError, "emit_%U takes each of %R once", self->ev,
                             self->names);
            return NULL;
        }
        values = ordered;
    }
    PyObject *ring = PyObject_GetAttr(self->mine, text_ring);
    int stored = 0;
    if (ring == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return NULL;
        PyErr_Clear();
    }
    else if (PyObject_TypeCheck(ring, cursor_type) && !((Cursor *)ring)->busy) {
        ((Cursor *)ring)->busy = 1;
        stored = store(self, (Cursor *)ring, values);
        ((Cursor *)ring)->busy = ((Cursor *)ring)->off;
    }
    Py_XDECREF(ring);
    if (stored)
        Py_RETURN_TRUE;
    return hand_on(self, values);
}

static int emitter_traverse(Emitter *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->mine);
    Py_VISIT(self->otherwise);
    Py_VISIT(self->dumps);
    return 0;
}

static int emitter_clear(Emitter *self)
{
    Py_CLEAR(self->mine);
    Py_CLEAR(self->otherwise);
    Py_CLEAR(self->dumps);
    return 0;
}

static void emitter_dealloc(Emitter *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    emitter_clear(self);
    Py_CLEAR(self->ev);
    Py_CLEAR(self->order);
    Py_CLEAR(self->names);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot emitter_slots[] = {
    {Py_tp_dealloc, emitter_dealloc},
    {Py_tp_traverse, emitter_traverse},
    {Py_tp_clear, emitter_clear},
    {Py_tp_doc, "What an emitter knows."},
    {0, NULL},
};

static PyType_Spec emitter_spec = {
    "hkvtool.recorder._ring.Emitter", sizeof(Emitter), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, emitter_slots,
};

static PyTypeObject *emitter_type;

static PyObject *make_emitter(PyObject *module, PyObject *args)
{
    PyObject *mine, *otherwise, *dumps, *ev, *names, *keys, *order;
    long long shape;
    unsigned kind, version;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOUO!O!O!LII", &mine, &otherwise, &dumps, &ev, &PyTuple_Type,
                          &names, &PyTuple_Type, &keys, &PyTuple_Type, &order, &shape, &kind,
                          &version))
        return NULL;
    Py_ssize_t count = PyTuple_Size(order);
    if (count > MOST_KEYS || PyTuple_Size(keys) != count || PyTuple_Size(names) != count
        || shape != (int32_t)shape) {
        PyErr_SetString(PyExc_ValueError, "no event has such keys");
        return NULL;
    }
    Emitter *self = PyObject_GC_New(Emitter, emitter_type);
    if (self == NULL)
        return NULL;
    memset((char *)self + offsetof(Emitter, mine), 0, sizeof(Emitter) - offsetof(Emitter, mine));
    Py_INCREF(mine), self->mine = mine;
    Py_INCREF(otherwise), self->otherwise = otherwise;
    Py_INCREF(dumps), self->dumps = dumps;
    Py_INCREF(ev), self->ev = ev;
    Py_INCREF(order), self->order = order;
    Py_INCREF(names), self->names = names;
    self->shape = shape;
    self->kind = kind;
    self->version = version;
    self->count = (int)count;
    self->def = (PyMethodDef){
        "emit", (PyCFunction)(void (*)(void))emit, METH_FASTCALL | METH_KEYWORDS,
        "Store one event; whether it was stored.",
    };
    PyObject_GC_Track(self);
    PyObject *made = NULL;
    for (int i = 0; i < self->count; i++) {
        Py_ssize_t place = PySequence_Index(keys, PyTuple_GetItem(order, i));
        if (place < 0)
            goto end;
        self->place[i] = (int)place;
    }
    made = PyCFunction_NewEx(&self->def, (PyObject *)self, NULL);
end:
    Py_DECREF(self);
    return made;
}

static PyMethodDef functions[] = {
    {"make_emitter", make_emitter, METH_VARARGS,
     "A function that takes the values of some keys and stores one event."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_ring", "Prepared emitters in C.", -1, functions,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__ring(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320 : crc >> 1;
        crc_table[i] = crc;
    }
    text_ring = PyUnicode_InternFromString("ring");
    text_ev = PyUnicode_InternFromString("ev");
    cursor_type = (PyTypeObject *)PyType_FromSpec(&cursor_spec);
    emitter_type = (PyTypeObject *)PyType_FromSpec(&emitter_spec);
    if (!text_ring || !text_ev || !cursor_type || !emitter_type)
        return NULL;
    Py_INCREF(cursor_type);
    if (PyModule_AddObject(module, "Cursor", (PyObject *)cursor_type) < 0 || add_hooks(module) < 0)
        return NULL;
    return module;
}
