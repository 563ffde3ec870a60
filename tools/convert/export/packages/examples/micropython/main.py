# The board learns what its sensor sees: hold the button of a class while it looks.
from machine import ADC, Pin
from slots import FileSlots

from microtrain import Model

BUTTONS = [Pin(2, Pin.IN, Pin.PULL_UP), Pin(3, Pin.IN, Pin.PULL_UP)]  # class 0, class 1

sensor = ADC(0)
device = Model("{{model}}")
slots = FileSlots("learned", device.slot_bytes)
device.load(slots)  # False the first time
frame = bytearray(device.input_bytes)
while True:
    for i in range(len(frame)):
        frame[i] = sensor.read_u16() >> 8  # your sensor: values 0..255
    device.feed(frame)
    held = [label for label, button in enumerate(BUTTONS) if not button.value()]
    if held:
        print("loss", device.train(held[0]))
        if device.steps % 20 == 0:
            device.save(slots)
    else:
        print("class", device.predict())
