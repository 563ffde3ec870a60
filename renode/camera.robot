*** Comments ***
The camera demo (docs/hardware.md), on Renode and on the board model: `make renode`. Firmware: `pio run -e camera`.
Only keywords that both know. The suite knows no model: whatever network is in the ELF, it must pass. Its scenes are
raw RGB565 pictures: a bright half on the left or on the right, of a brightness that varies, with noise.

*** Settings ***
Resource                keywords.resource

*** Variables ***
${ELF}                  ${CURDIR}/../.pio/build/camera/firmware.elf
${CAMERA}               ${CURDIR}/camera.repl
${SHOTS}                20

*** Keywords ***
Boot With Camera
    Create Board
    ${description}=             Monitor Path    ${CAMERA}
    Execute Command             machine LoadPlatformDescription ${description}
    ${scene}=                   Scene    left    0
    Show                        ${scene}
    Start Emulation
    Wait For Line On Uart       ^camera 320x240 sensor [0-9a-f]{4}    treatAsRegex=true
    Wait For Line On Uart       ^ready$    treatAsRegex=true

Show
    [Arguments]                 ${file}
    ${picture}=                 Monitor Path    ${file}
    Execute Command             sysbus.spi2.camera ImageSource ${picture}

Half
    [Documentation]             160 pixels of one grey, each a little off. A grey of v in 5 bits is v * 2113 in RGB565.
    [Arguments]                 ${grey}
    ${pixels}=                  Evaluate    b''.join(((${grey} + n * 13 % 31 - 15) // 8 * 2113).to_bytes(2, 'big') for n in range(160))
    RETURN                      ${pixels}

Scene
    [Documentation]             Writes a picture and returns its name.
    [Arguments]                 ${side}    ${number}
    ${grey}=                    Evaluate    random.Random('${side}${number}').randrange(140, 230)    modules=random
    ${bright}=                  Half    ${grey}
    ${dark}=                    Half    40
    ${row}=                     Evaluate    $bright + $dark if '${side}' == 'left' else $dark + $bright
    ${file}=                    Evaluate    os.path.join(tempfile.gettempdir(), 'microtrain-${side}-${number}.rgb565')    modules=os,tempfile
    Evaluate                    pathlib.Path($file).write_bytes($row * 240)    modules=pathlib
    RETURN                      ${file}

Shoot
    [Arguments]                 ${side}    ${number}    ${command}    ${answer}
    ${scene}=                   Scene    ${side}    ${number}
    Show                        ${scene}
    ${found}=                   Ask    ${command}    ${answer}
    RETURN                      ${found}

*** Test Cases ***
A Picture Becomes An Image
    Boot With Camera
    Ask                         capture    ^ok capture$
    ${first}=                   Ask    infer    ^logits(.*)$
    Wait For Line On Uart       ^ok infer \\d+$    treatAsRegex=true
    Ask                         capture    ^ok capture$
    ${again}=                   Ask    infer    ^logits(.*)$
    Wait For Line On Uart       ^ok infer \\d+$    treatAsRegex=true
    Should Be Equal             ${first.Groups[0]}    ${again.Groups[0]}

Modes And Labels
    Boot With Camera
    Ask                         shoot    ^ok shoot infer \\d+ \\d+$
    Ask                         mode train    ^ok mode train$
    Ask                         label 1 0    ^ok label 1 0$
    Ask                         shoot    ^ok shoot (train|look) 1 \\d+ \\d+( \\d+\\.\\d{4})?$
    Ask                         mode evaluate    ^ok mode evaluate$
    Ask                         shoot 0    ^ok shoot evaluate 0 \\d+ \\d+ \\d+ 1$
    Ask                         mode sleep    ^err argument
    Ask                         label 99999    ^err argument

Buttons Take Labelled Pictures
    Boot With Camera
    Ask                         mode train    ^ok mode train$
    Execute Command             sysbus.gpioPortI.userButton Press
    Test If Uart Is Idle        0.1
    Execute Command             sysbus.gpioPortI.userButton Release
    Wait For Line On Uart       ^shot (train|look) 0 \\d+ \\d+( \\d+\\.\\d{4})?$    treatAsRegex=true
    Execute Command             sysbus.gpioPortG.labelButton Press
    Test If Uart Is Idle        0.1
    Execute Command             sysbus.gpioPortG.labelButton Release
    Wait For Line On Uart       ^shot (train|look) 1 \\d+ \\d+( \\d+\\.\\d{4})?$    treatAsRegex=true

The Led Shows A Prediction
    Boot With Camera
    Create Led Tester           sysbus.gpioPortI.userLed
    Assert Led State            false
    Ask                         shoot    ^ok shoot infer \\d+ \\d+$
    Assert Led State            true    timeout=2
    Assert Led State            false    timeout=2

A Person Shows Two Scenes
    Boot With Camera
    Ask                         mode train    ^ok mode train$
    FOR    ${number}    IN RANGE    ${SHOTS}
        Shoot                   left     ${number}    shoot 0    ^ok shoot (train|look) 0 \\d+ \\d+( \\d+\\.\\d{4})?$
        Shoot                   right    ${number}    shoot 1    ^ok shoot (train|look) 1 \\d+ \\d+( \\d+\\.\\d{4})?$
    END
    Ask                         mode evaluate    ^ok mode evaluate$
    Ask                         stats clear    ^ok$
    FOR    ${number}    IN RANGE    100    110
        Shoot                   left     ${number}    shoot 0    ^ok shoot evaluate 0 \\d+ \\d+ \\d+ \\d+$
        ${last}=                Shoot    right    ${number}    shoot 1    ^ok shoot evaluate 1 \\d+ \\d+ (\\d+) \\d+$
    END
    ${correct}=                 Convert To Integer    ${last.Groups[0]}
    Should Be True              ${correct} >= 17

A Reset Forgets What The Camera Taught
    Boot With Camera
    ${before}=                  Trainables
    Ask                         mode train    ^ok mode train$
    Ask                         shoot 1    ^ok shoot (train|look) 1 \\d+ \\d+( \\d+\\.\\d{4})?$
    ${learned}=                 Trainables
    Should Not Be Equal         ${before}    ${learned}
    Ask                         reset    ^ok reset$
    ${restored}=                Trainables
    Should Be Equal             ${before}    ${restored}

Without A Camera The Serial Line Goes On
    Power On
    Wait For Line On Uart       ^camera none: no camera answers on SPI    treatAsRegex=true
    Wait For Line On Uart       ^ready$    treatAsRegex=true
    Ask                         shoot    ^err camera no camera answers on SPI
    Ask                         pattern 3    ^ok pattern$
    Ask                         train 1    ^ok train 1 \\d+ \\d+\\.\\d{4}$
